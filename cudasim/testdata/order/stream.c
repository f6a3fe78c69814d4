/* Two streams and the order of their work: the kinds of conflict, and waits of the host. */
#include "order.h"

PAIR(a_read_after_a_write, "cuMemsetD8Async", "cuMemcpyDtoHAsync", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, b));
  expect_host(p, 7);
}

PAIR(a_write_after_a_read, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "") {
  OK(cuMemsetD8Async(m, 3, N, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemcpyDtoHAsync_v2(q, m, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyHtoDAsync_v2(m, p, N, b));
  expect_host(q, 3);
  expect(m, 1);
}

PAIR(a_write_after_a_write, "cuMemsetD8Async", "cuMemsetD32Async", "") {
  OK(cuMemsetD8Async(m, 1, N, a));
  WAIT(follow(b, a));
  OK(cuMemsetD32Async(m, 0x02020202, N / 4, b));
  expect(m, 2);
}

/* Upload, then read back on another stream: gave wrong bytes now and then, and never a violation. */
PAIR(an_upload_is_read_back_on_another_stream, "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "") {
  memset(p, 5, N);
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoHAsync_v2(q, m, N, b));
  expect_host(q, 5);
}

PAIR(the_source_of_a_copy_on_the_device_is_read, "cuMemcpyDtoDAsync", "cuMemsetD16Async", "") {
  OK(cuMemsetD8Async(m, 1, N, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  WAIT(follow(b, a));
  OK(cuMemsetD16Async(m, 0x0202, N / 2, b));
  expect(n, 1);
}

PAIR(the_destination_of_a_copy_on_the_device_is_written, "cuMemcpyDtoDAsync", "cuMemcpyAsync", "") {
  OK(cuMemsetD8Async(m, 1, N, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyAsync(o, n, N, b));
  expect(o, 1);
}

/* The memory between two streams is page-locked memory of the host. */
PAIR(page_locked_memory_between_two_streams, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "") {
  OK(cuMemsetD8Async(m, 9, N, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyHtoDAsync_v2(n, p, N, b));
  expect(n, 9);
}

PAIR(registered_memory_between_two_streams, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "") {
  unsigned char *between = new_registered(N);
  OK(cuMemsetD8Async(m, 9, N, a));
  OK(cuMemcpyDtoHAsync_v2(between, m, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyHtoDAsync_v2(n, between, N, b));
  expect(n, 9);
}

PAIR(managed_memory_between_two_streams, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUdeviceptr from = new_managed(N);
  OK(cuMemsetD8Async(from, 9, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(m, from, N, b));
  expect(m, 9);
}

FILL_AND_COPY(the_host_waits_for_a_stream, a, b) { WAIT(cuStreamSynchronize(a)); }

FILL_AND_COPY(the_host_waits_for_the_wrong_stream, a, c) {
  OK(cuMemsetD8Async(o, 1, N, b));
  OK(cuStreamSynchronize(PICK(a, b)));
}

PAIR(the_host_waits_before_the_work, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  WRONG(cuStreamSynchronize(a));
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuStreamSynchronize(a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* The host has waited, then the stream goes on. */
PAIR(the_host_waits_between_two_writes, "cuMemsetD16Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  WRONG(cuStreamSynchronize(a));
  OK(cuMemsetD16Async(m, 0x0808, N / 2, a));
  RIGHT(cuStreamSynchronize(a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 8);
}

FILL_AND_COPY(the_host_asks_a_stream, a, b) { WAIT(poll_stream(a)); }

FILL_AND_COPY(the_host_asks_the_wrong_stream, a, c) {
  OK(cuMemsetD8Async(n, 1, N, b));
  OK(cuStreamSynchronize(b));
  OK(poll_stream(PICK(a, b)));
}

/* A low and a high priority are no order. */
PAIR(priority_is_no_order, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  int least, greatest;
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  CUstream low, high;
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, greatest));
  OK(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, least));
  OK(cuMemsetD8Async(m, 7, N, high));
  WAIT(follow(low, high));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, low));
  OK(cuStreamDestroy_v2(high));
  OK(cuStreamDestroy_v2(low));
  expect(n, 7);
}

/* All work of the first stream was done long before: that is luck, not order. */
FILL_AND_COPY(work_that_is_long_done, a, b) {
  cudasim_drain();
  WAIT(follow(b, a));
}

/* Nothing runs in time, and still it is reported. */
PAIR(work_of_a_paused_machine, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  cudasim_pause();
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  cudasim_resume();
  expect(n, 7);
}

CORRECT(work_of_one_stream_is_in_order, "") {
  OK(cuMemsetD8Async(m, 1, N, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  OK(cuMemsetD8Async(m, 2, N, a));
  OK(cuMemcpyDtoDAsync_v2(m, n, N, a));
  expect(m, 1);
  expect(n, 1);
}

CORRECT(reads_do_not_conflict, "") {
  OK(cuMemcpyHtoD_v2(m, q, N));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect_host(p, 1);
  expect(n, 1);
}

CORRECT(streams_with_memory_of_their_own_need_no_order, "") {
  for (int i = 0; i < 4; i++) {
    OK(cuMemsetD8Async(m, 1, N, a));
    OK(cuMemsetD8Async(n, 2, N, b));
  }
  expect(m, 1);
  expect(n, 2);
}

/* Once the host has waited for one stream, all streams come after it. */
CORRECT(every_stream_is_after_what_the_host_knows, "") {
  CUdeviceptr n[4];
  OK(cuMemsetD8Async(m, 1, N, a));
  OK(cuStreamSynchronize(a));
  for (int i = 0; i < 4; i++) {
    n[i] = new_memory(N);
    OK(cuMemcpyDtoDAsync_v2(n[i], m, N, new_stream()));
    expect(n[i], 1);
  }
}

static void synchronize(void *stream) { OK(cuStreamSynchronize(stream)); }

CORRECT(one_thread_waits_and_another_one_uses_it, "") {
  OK(cuMemsetD8Async(m, 1, N, a));
  on_thread(synchronize, a);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 1);
}

CORRECT(held_back_work_is_in_order, "") {
  cudasim_pause();
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  OK(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  OK(follow(a, b));
  OK(cuMemsetD8Async(m, 2, N, a));
  cudasim_resume();
  expect(n, 1);
  expect(m, 2);
}
