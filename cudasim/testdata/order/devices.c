/* Several devices, and copies between them. */
#include "order.h"

PAIR(a_copy_between_devices_is_read, "cuMemcpyPeerAsync", "cuMemcpyDtoHAsync", "devices=2") {
  CUcontext second = use(1);
  CUdeviceptr n = new_memory(N);
  CUstream b = new_stream();
  unsigned char *out = new_ones(N);
  CUcontext first = use(0);
  CUdeviceptr m = new_memory(N);
  CUstream a = new_stream();
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyPeerAsync(n, second, m, first, N, a));
  CUevent e = new_event();
  OK(cuEventRecord(e, a));
  use(1);
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoHAsync_v2(out, n, N, b));
  expect_host(out, 7);
}

PAIR(the_source_of_a_copy_between_devices_is_written, "cuMemcpyPeerAsync", "cuMemsetD8Async", "devices=2") {
  CUcontext second = use(1);
  CUdeviceptr n = new_memory(N);
  CUcontext first = use(0);
  CUdeviceptr m = new_memory(N);
  CUstream a = new_stream(), b = new_stream();
  unsigned char *in = new_ones(N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, a));
  OK(cuMemcpyPeerAsync(n, second, m, first, N, a));
  WAIT(follow(b, a));
  OK(cuMemsetD8Async(m, 9, N, b));
  use(1);
  expect(n, 1);
}

PAIR(the_source_is_not_ready_on_its_device, "cuMemsetD8Async", "cuMemcpyPeerAsync", "devices=2") {
  CUcontext first = use(0);
  CUdeviceptr m = new_memory(N);
  CUstream a = new_stream();
  CUevent e = new_event();
  CUcontext second = use(1);
  CUdeviceptr n = new_memory(N);
  CUstream b = new_stream();
  use(0);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  use(1);
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyPeerAsync(n, second, m, first, N, b));
  expect(n, 7);
}

/* The copy that is not asynchronous is in order with the work of both contexts. */
PAIR(an_ordered_copy_between_devices, "cuMemcpyPeerAsync", "cuMemcpyDtoHAsync", "devices=2") {
  CUcontext second = use(1);
  CUdeviceptr n = new_memory(N);
  CUstream b = new_blocking_stream();
  unsigned char *out = new_ones(N);
  CUcontext first = use(0);
  CUdeviceptr m = new_memory(N);
  CUstream a = new_blocking_stream();
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuMemcpyPeer(n, second, m, first, N));
  WRONG(cuMemcpyPeerAsync(n, second, m, first, N, a));
  use(1);
  OK(cuMemcpyDtoHAsync_v2(out, n, N, b));
  expect_host(out, 7);
}

/* Of non-blocking streams too: the manual excepts none. */
CORRECT(a_copy_between_devices_is_in_order_with_non_blocking_streams, "devices=2") {
  CUcontext second = use(1);
  CUdeviceptr n = new_memory(N);
  CUstream b = new_stream();
  CUcontext first = use(0);
  CUdeviceptr m = new_memory(N);
  CUstream a = new_stream();
  use(1);
  OK(cuMemsetD8Async(n, 1, N, b));
  use(0);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyPeer(n, second, m, first, N));
  OK(cuMemsetD8Async(m, 8, N, new_stream()));
  use(1);
  unsigned char *out = new_ones(N);
  OK(cuMemcpyDtoHAsync_v2(out, n, N, b));
  OK(cuStreamSynchronize(b));
  expect_host(out, 7);
}

PAIR(a_copy_between_devices_that_is_ordered_with_nothing, "cuMemsetD8Async", "cuMemcpyPeerAsync", "devices=2") {
  CUcontext second = use(1);
  CUdeviceptr n = new_memory(N);
  CUcontext first = use(0);
  CUdeviceptr m = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, new_stream()));
  RIGHT(cuMemcpyPeer(n, second, m, first, N));
  WRONG(cuMemcpyPeerAsync(n, second, m, first, N, new_stream()));
  OK(cuCtxSynchronize());
  expect(n, 7);
}

/* By way of page-locked memory, which both devices reach. */
PAIR(page_locked_memory_between_two_devices, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "devices=2") {
  use(1);
  CUdeviceptr n = new_memory(N);
  CUstream b = new_stream();
  use(0);
  CUdeviceptr m = new_memory(N);
  CUstream a = new_stream();
  unsigned char *between = new_ones(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(between, m, N, a));
  CUevent e = new_event();
  OK(cuEventRecord(e, a));
  use(1);
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyHtoDAsync_v2(n, between, N, b));
  expect(n, 7);
}

PAIR(the_host_waits_for_the_wrong_device, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "devices=2") {
  use(1);
  CUdeviceptr n = new_memory(N);
  CUstream b = new_stream();
  use(0);
  CUdeviceptr m = new_memory(N);
  CUstream a = new_stream();
  unsigned char *between = new_ones(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(between, m, N, a));
  use(PICK(0, 1));
  OK(cuCtxSynchronize());
  use(1);
  OK(cuMemcpyHtoDAsync_v2(n, between, N, b));
  expect(n, 7);
}

PAIR(legacy_streams_of_two_devices, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "devices=2") {
  use(1);
  CUdeviceptr n = new_memory(N);
  use(0);
  CUdeviceptr m = new_memory(N);
  unsigned char *between = new_ones(N);
  CUevent e = new_event();
  OK(cuMemsetD8Async(m, 7, N, NULL));
  OK(cuMemcpyDtoHAsync_v2(between, m, N, NULL));
  OK(cuEventRecord(e, NULL));
  use(1);
  WAIT(cuStreamWaitEvent(NULL, e, 0));
  OK(cuMemcpyHtoDAsync_v2(n, between, N, NULL));
  expect(n, 7);
}

PAIR(managed_memory_of_two_devices, "cuMemsetD8Async", "cuMemsetD16Async", "devices=2") {
  use(1);
  CUstream b = new_stream();
  use(0);
  CUdeviceptr m = new_managed(N);
  CUstream a = new_stream();
  CUevent e = new_event();
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  use(1);
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD16Async(m, 0x0808, N / 2, b));
  expect(m, 8);
}

/* Three devices hand it on. */
PAIR(a_chain_of_three_devices, "cuMemcpyPeerAsync", "cuMemcpyPeerAsync", "devices=3") {
  CUcontext context[3];
  CUdeviceptr m[3];
  CUstream s[3];
  CUevent e[3];
  for (int d = 0; d < 3; d++) {
    context[d] = use(d);
    m[d] = new_memory(N);
    s[d] = new_stream();
    e[d] = new_event();
  }
  use(0);
  OK(cuMemsetD8Async(m[0], 7, N, s[0]));
  OK(cuMemcpyPeerAsync(m[1], context[1], m[0], context[0], N, s[0]));
  OK(cuEventRecord(e[0], s[0]));
  use(1);
  WAIT(cuStreamWaitEvent(s[1], e[0], 0));
  OK(cuMemcpyPeerAsync(m[2], context[2], m[1], context[1], N, s[1]));
  OK(cuStreamSynchronize(s[1]));
  use(2);
  expect(m[2], 7);
}

/* Serialised with all earlier and later work of the blocking streams of both. */
CORRECT(a_copy_between_devices_is_in_order_with_both, "devices=2") {
  CUcontext second = use(1);
  CUdeviceptr n = new_memory(2 * N);
  CUstream b = new_blocking_stream();
  CUcontext first = use(0);
  CUdeviceptr m = new_memory(2 * N);
  CUstream a = new_blocking_stream();
  use(1);
  OK(cuMemsetD8Async(n, 1, 2 * N, b));
  use(0);
  OK(cuMemsetD8Async(m, 7, 2 * N, a));
  OK(cuMemcpyPeer(n, second, m, first, 2 * N));
  OK(cuMemsetD8Async(m, 8, 2 * N, a));
  use(1);
  OK(cuMemsetD8Async(n, 9, N, b));
  expect(n, 9);
  expect(n + N, 7);
}
