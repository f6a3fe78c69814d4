/* Waiting for a context, the end of streams and of memory. */
#include "order.h"

PAIR(the_host_waits_for_the_context, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(cuCtxSynchronize());
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(the_host_waits_for_the_context_too_early, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  WRONG(cuCtxSynchronize());
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuCtxSynchronize());
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(the_context_waits_for_the_legacy_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, NULL));
  WAIT(cuCtxSynchronize());
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  expect(n, 7);
}

PAIR(the_context_waits_for_a_destroyed_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  end_stream(a);
  WAIT(cuCtxSynchronize());
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(an_event_outlives_its_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  end_stream(a);
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(the_host_waits_for_an_event_that_outlived_its_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  end_stream(a);
  WAIT(cuEventSynchronize(e));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* Destroying a stream waits for nothing. */
PAIR(the_host_waits_before_it_destroys_a_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(cuStreamSynchronize(a));
  end_stream(a);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* The waiting stream is destroyed; work that an event orders after it still follows everything. */
PAIR(a_destroyed_stream_in_the_middle_of_a_chain, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), b = new_stream(), c = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(b, a));
  OK(follow(c, b));
  end_stream(b);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
  expect(n, 7);
}

/* The host and another stream know much of a stream that is gone: nothing of the one in its place. */
PAIR(a_stream_in_the_place_of_a_destroyed_one, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), c = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N), other = new_memory(N);
  for (int i = 0; i < 16; i++) OK(cuMemsetD8Async(other, 1, N, a));
  OK(follow(c, a));
  OK(cuStreamSynchronize(a));
  end_stream(a);
  CUstream b = new_stream();
  OK(cuMemsetD8Async(m, 7, N, b));
  WAIT(follow(c, b));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
  expect(n, 7);
}

PAIR(many_streams_come_and_go, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream c = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N), other = new_memory(N);
  for (int i = 0; i < 20; i++) {
    CUstream s = new_stream();
    OK(cuMemsetD8Async(i % 2 ? other : m, 1, N, s));
    OK(cuStreamSynchronize(s));
    end_stream(s);
  }
  CUstream b = new_stream();
  OK(cuMemsetD8Async(m, 7, N, b));
  WAIT(follow(c, b));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
  expect(n, 7);
}

/* The host waits for another context than the one that has the work. */
PAIR(the_host_waits_for_the_wrong_context, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  CUcontext first = use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *out = new_pinned(N);
  CUcontext second = new_context(0);
  OK(cuCtxSetCurrent(first));
  OK(cuMemcpyDtoHAsync_v2(out, m, N, s));
  OK(cuCtxSetCurrent(PICK(first, second)));
  OK(cuCtxSynchronize());
  cudasim_host_read(out, N);
}

/* Each context has a legacy stream of its own, and the streams of one are none of the other's. */
PAIR(legacy_streams_of_two_contexts, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "") {
  CUcontext first = use(0);
  CUdeviceptr m = new_memory(N);
  unsigned char *between = new_pinned(N);
  CUcontext second = new_context(0);
  CUdeviceptr n = new_memory(N);
  OK(cuCtxSetCurrent(first));
  OK(cuMemsetD8Async(m, 7, N, NULL));
  OK(cuMemcpyDtoHAsync_v2(between, m, N, NULL));
  WAIT(cuStreamSynchronize(NULL));
  OK(cuCtxSetCurrent(second));
  OK(cuMemcpyHtoDAsync_v2(n, between, N, NULL));
  expect(n, 7);
}

CORRECT(cumemfree_waits_for_the_device, "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m, n = new_memory(N);
  OK(cuMemAlloc_v2(&m, N));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  OK(cuMemFree_v2(m));
  expect(n, 7);
}

CORRECT(cumemfreehost_waits_for_the_devices, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  void *in;
  OK(cuMemAllocHost_v2(&in, N));
  memset(in, 7, N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, s));
  OK(cuMemFreeHost(in));
  expect(m, 7);
}

CORRECT(managed_memory_is_freed_after_the_device, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m, n = new_memory(N);
  OK(cuMemAllocManaged(&m, N, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemsetD8Async(m, 7, N, s));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  OK(cuMemFree_v2(m));
  expect(n, 7);
}

/* The host still counts as having waited for the writes of a destroyed stream. */
CORRECT(what_a_destroyed_stream_left_is_known, "") {
  use(0);
  CUstream c = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N), other = new_memory(N);
  for (unsigned char i = 0; i < 12; i++) {
    CUstream s = new_stream();
    OK(cuMemsetD8Async(m, i, N, s));
    OK(cuStreamSynchronize(s));
    end_stream(s);
    CUstream next = new_stream();
    OK(cuMemsetD8Async(other, i, N, next));
    OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
    OK(cuStreamSynchronize(c));
    OK(cuStreamSynchronize(next));
    end_stream(next);
  }
  expect(n, 11);
}

CORRECT(a_waiting_stream_outlives_the_other_and_its_event, "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  end_event(e);
  end_stream(a);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  end_stream(b);
  expect(n, 7);
}

/* Destroying a context waits for its work. */
CORRECT(the_end_of_a_context, "") {
  CUcontext first = use(0), second;
  CUdeviceptr m, n = new_memory(N);
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
