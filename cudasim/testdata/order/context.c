/* Waiting for a context, the end of streams and of memory. */
#include "order.h"

FILL_AND_COPY(the_host_waits_for_the_context, a, b) { WAIT(cuCtxSynchronize()); }

PAIR(the_host_waits_for_the_context_too_early, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  WRONG(cuCtxSynchronize());
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuCtxSynchronize());
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

FILL_AND_COPY(the_context_waits_for_the_legacy_stream, NULL, a) { WAIT(cuCtxSynchronize()); }

FILL_AND_COPY(the_context_waits_for_a_destroyed_stream, a, b) {
  OK(cuStreamDestroy_v2(a));
  WAIT(cuCtxSynchronize());
}

FILL_AND_COPY(an_event_outlives_its_stream, a, b) {
  OK(cuEventRecord(e, a));
  OK(cuStreamDestroy_v2(a));
  WAIT(cuStreamWaitEvent(b, e, 0));
}

FILL_AND_COPY(the_host_waits_for_an_event_that_outlived_its_stream, a, b) {
  OK(cuEventRecord(e, a));
  OK(cuStreamDestroy_v2(a));
  WAIT(cuEventSynchronize(e));
}

/* Destroying a stream waits for nothing. */
FILL_AND_COPY(the_host_waits_before_it_destroys_a_stream, a, b) {
  WAIT(cuStreamSynchronize(a));
  OK(cuStreamDestroy_v2(a));
}

/* The waiting stream is destroyed; work that an event orders after it still follows everything. */
FILL_AND_COPY(a_destroyed_stream_in_the_middle_of_a_chain, a, c) {
  WAIT(follow(b, a));
  OK(follow(c, b));
  OK(cuStreamDestroy_v2(b));
}

/* The host and another stream know much of a stream that is gone: nothing of the one in its place. */
PAIR(a_stream_in_the_place_of_a_destroyed_one, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  for (int i = 0; i < 16; i++) OK(cuMemsetD8Async(o, 1, N, a));
  OK(follow(c, a));
  OK(cuStreamSynchronize(a));
  OK(cuStreamDestroy_v2(a));
  CUstream b = new_stream();
  OK(cuMemsetD8Async(m, 7, N, b));
  WAIT(follow(c, b));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
  expect(n, 7);
}

PAIR(many_streams_come_and_go, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  for (int i = 0; i < 20; i++) {
    CUstream s = new_stream();
    OK(cuMemsetD8Async(i % 2 ? o : m, 1, N, s));
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
  }
  CUstream b = new_stream();
  OK(cuMemsetD8Async(m, 7, N, b));
  WAIT(follow(c, b));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
  expect(n, 7);
}

/* The host waits for another context than the one that has the work. */
PAIR(the_host_waits_for_the_wrong_context, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  CUcontext first = use(0), second = new_context(0);
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuCtxSetCurrent(PICK(first, second)));
  OK(cuCtxSynchronize());
  cudasim_host_read(p, N);
}

/* Each context has a legacy stream of its own, and the streams of one are none of the other's. */
PAIR(legacy_streams_of_two_contexts, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "") {
  CUcontext second = new_context(0);
  CUdeviceptr n = new_memory(N);
  use(0);
  OK(cuMemsetD8Async(m, 7, N, NULL));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, NULL));
  WAIT(cuStreamSynchronize(NULL));
  OK(cuCtxSetCurrent(second));
  OK(cuMemcpyHtoDAsync_v2(n, p, N, NULL));
  expect(n, 7);
}

CORRECT(cumemfree_waits_for_the_device, "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  OK(cuMemFree_v2(m));
  expect(n, 7);
}

CORRECT(cumemfreehost_waits_for_the_devices, "") {
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  OK(cuMemFreeHost(p));
  expect(m, 1);
}

CORRECT(managed_memory_is_freed_after_the_device, "") {
  CUdeviceptr m = new_managed(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  OK(cuMemFree_v2(m));
  expect(n, 7);
}

/* The host still counts as having waited for the writes of a destroyed stream. */
CORRECT(what_a_destroyed_stream_left_is_known, "") {
  for (unsigned char i = 0; i < 12; i++) {
    CUstream s = new_stream();
    OK(cuMemsetD8Async(m, i, N, s));
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
    CUstream next = new_stream();
    OK(cuMemsetD8Async(o, i, N, next));
    OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
    OK(cuStreamSynchronize(c));
    OK(cuStreamSynchronize(next));
    OK(cuStreamDestroy_v2(next));
  }
  expect(n, 11);
}

CORRECT(a_waiting_stream_outlives_the_other_and_its_event, "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  OK(cuStreamDestroy_v2(b));
  expect(n, 7);
}

/* Destroying a context waits for its work. */
CORRECT(the_end_of_a_context, "") {
  CUcontext first = use(0), second;
  CUdeviceptr m;
  CUstream s;
  OK(cuCtxCreate_v2(&second, 0, 0));
  OK(cuMemAlloc_v2(&m, N));
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  OK(cuMemsetD8Async(m, 7, N, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemsetD8Async(m, 8, N, s));
  OK(cuCtxDestroy_v2(second));
  OK(cuCtxSetCurrent(first));
  OK(cuMemsetD8_v2(n, 7, N));
  expect(n, 7);
}
