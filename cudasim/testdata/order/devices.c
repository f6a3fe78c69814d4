/* Several devices, and copies between them. */
#include "order.h"

/* The objects of every program are of device 0; these are of device 1. */
static CUcontext here, there;
static CUstream far, far_blocking;
static CUdeviceptr distant; /* N bytes */

static void two_devices(void) {
  there = use(1);
  far = new_stream();
  far_blocking = new_blocking_stream();
  distant = new_memory(N);
  here = use(0);
}

#define TWO_DEVICES(id, first, second)   \
  static void between_##id(void);        \
  PAIR(id, first, second, "devices=2") { \
    two_devices();                       \
    between_##id();                      \
  }                                      \
  static void between_##id(void)

TWO_DEVICES(a_copy_between_devices_is_read, "cuMemcpyPeerAsync", "cuMemcpyDtoHAsync") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyPeerAsync(distant, there, m, here, N, a));
  OK(cuEventRecord(e, a));
  use(1);
  WAIT(cuStreamWaitEvent(far, e, 0));
  OK(cuMemcpyDtoHAsync_v2(p, distant, N, far));
  expect_host(p, 7);
}

TWO_DEVICES(the_source_of_a_copy_between_devices_is_written, "cuMemcpyPeerAsync", "cuMemsetD8Async") {
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  OK(cuMemcpyPeerAsync(distant, there, m, here, N, a));
  WAIT(follow(b, a));
  OK(cuMemsetD8Async(m, 9, N, b));
  use(1);
  expect(distant, 1);
}

TWO_DEVICES(the_source_is_not_ready_on_its_device, "cuMemsetD8Async", "cuMemcpyPeerAsync") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  use(1);
  WAIT(cuStreamWaitEvent(far, e, 0));
  OK(cuMemcpyPeerAsync(distant, there, m, here, N, far));
  expect(distant, 7);
}

/* The copy that is not asynchronous is in order with the work of both contexts. */
TWO_DEVICES(an_ordered_copy_between_devices, "cuMemcpyPeerAsync", "cuMemcpyDtoHAsync") {
  OK(cuMemsetD8Async(m, 7, N, x));
  RIGHT(cuMemcpyPeer(distant, there, m, here, N));
  WRONG(cuMemcpyPeerAsync(distant, there, m, here, N, x));
  use(1);
  OK(cuMemcpyDtoHAsync_v2(p, distant, N, far_blocking));
  expect_host(p, 7);
}

/* Of non-blocking streams too: the manual excepts none. */
CORRECT(a_copy_between_devices_is_in_order_with_non_blocking_streams, "devices=2") {
  two_devices();
  use(1);
  OK(cuMemsetD8Async(distant, 1, N, far));
  use(0);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyPeer(distant, there, m, here, N));
  OK(cuMemsetD8Async(m, 8, N, b));
  use(1);
  OK(cuMemcpyDtoHAsync_v2(p, distant, N, far));
  OK(cuStreamSynchronize(far));
  expect_host(p, 7);
}

TWO_DEVICES(a_copy_between_devices_that_is_ordered_with_nothing, "cuMemsetD8Async", "cuMemcpyPeerAsync") {
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuMemcpyPeer(distant, there, m, here, N));
  WRONG(cuMemcpyPeerAsync(distant, there, m, here, N, b));
  OK(cuCtxSynchronize());
  expect(distant, 7);
}

/* By way of page-locked memory, which both devices reach. */
TWO_DEVICES(page_locked_memory_between_two_devices, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuEventRecord(e, a));
  use(1);
  WAIT(cuStreamWaitEvent(far, e, 0));
  OK(cuMemcpyHtoDAsync_v2(distant, p, N, far));
  expect(distant, 7);
}

TWO_DEVICES(the_host_waits_for_the_wrong_device, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  use(PICK(0, 1));
  OK(cuCtxSynchronize());
  use(1);
  OK(cuMemcpyHtoDAsync_v2(distant, p, N, far));
  expect(distant, 7);
}

TWO_DEVICES(legacy_streams_of_two_devices, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync") {
  OK(cuMemsetD8Async(m, 7, N, NULL));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, NULL));
  OK(cuEventRecord(e, NULL));
  use(1);
  WAIT(cuStreamWaitEvent(NULL, e, 0));
  OK(cuMemcpyHtoDAsync_v2(distant, p, N, NULL));
  expect(distant, 7);
}

TWO_DEVICES(managed_memory_of_two_devices, "cuMemsetD8Async", "cuMemsetD16Async") {
  CUdeviceptr managed = new_managed(N);
  OK(cuMemsetD8Async(managed, 7, N, a));
  OK(cuEventRecord(e, a));
  use(1);
  WAIT(cuStreamWaitEvent(far, e, 0));
  OK(cuMemsetD16Async(managed, 0x0808, N / 2, far));
  expect(managed, 8);
}

/* Three devices hand it on. */
PAIR(a_chain_of_three_devices, "cuMemcpyPeerAsync", "cuMemcpyPeerAsync", "devices=3") {
  two_devices();
  CUcontext third = use(2);
  CUdeviceptr last = new_memory(N);
  use(0);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyPeerAsync(distant, there, m, here, N, a));
  OK(cuEventRecord(e, a));
  use(1);
  WAIT(cuStreamWaitEvent(far, e, 0));
  OK(cuMemcpyPeerAsync(last, third, distant, there, N, far));
  OK(cuStreamSynchronize(far));
  use(2);
  expect(last, 7);
}

/* Serialised with all earlier and later work of the blocking streams of both. */
CORRECT(a_copy_between_devices_is_in_order_with_both, "devices=2") {
  two_devices();
  CUdeviceptr m = new_memory(2 * N);
  use(1);
  CUdeviceptr distant = new_memory(2 * N);
  OK(cuMemsetD8Async(distant, 1, 2 * N, far_blocking));
  use(0);
  OK(cuMemsetD8Async(m, 7, 2 * N, x));
  OK(cuMemcpyPeer(distant, there, m, here, 2 * N));
  OK(cuMemsetD8Async(m, 8, 2 * N, x));
  use(1);
  OK(cuMemsetD8Async(distant, 9, N, far_blocking));
  expect(distant, 9);
  expect(distant + N, 7);
}
