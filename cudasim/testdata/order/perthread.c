/* The per-thread default stream: a blocking stream that each thread has for itself. */
#include "order.h"

PAIR(per_thread_and_blocking_streams_are_not_ordered, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_blocking_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, CU_STREAM_PER_THREAD));
  WAIT(follow(s, CU_STREAM_PER_THREAD));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  expect(n, 7);
}

PAIR(the_per_thread_stream_waits_for_another_one, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, s));
  WAIT(follow(CU_STREAM_PER_THREAD, s));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, CU_STREAM_PER_THREAD));
  expect(n, 7);
}

/* It is ordered with the legacy stream; a non-blocking stream would not be. */
PAIR(per_thread_and_legacy_streams_are_ordered, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, PICK(CU_STREAM_PER_THREAD, s)));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, CU_STREAM_LEGACY));
  expect(n, 7);
}

PAIR(the_per_thread_stream_is_after_the_legacy_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, CU_STREAM_LEGACY));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, PICK(CU_STREAM_PER_THREAD, s)));
  expect(n, 7);
}

PAIR(the_host_waits_for_the_per_thread_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async_ptsz(m, 7, N, NULL));
  WAIT(cuStreamSynchronize_ptsz(NULL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  expect(n, 7);
}

/* The legacy stream is another one, unless the symbol is a per-thread variant. */
PAIR(the_host_asks_the_default_stream_of_the_thread, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async_ptsz(m, 7, N, NULL));
  OK(poll_stream(PICK(CU_STREAM_PER_THREAD, s)));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  expect(n, 7);
}

struct user {
  CUcontext context;
  CUdeviceptr m;
  bool wait;
};

static void fill_on_own_stream(void *data) {
  struct user *user = data;
  OK(cuCtxSetCurrent(user->context));
  OK(cuMemsetD8Async(user->m, 7, N, CU_STREAM_PER_THREAD));
  if (user->wait) OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

/* The thread has ended, and its stream with it; the work may be pending. */
PAIR(streams_of_two_threads, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  struct user user = {.context = use(0), .m = new_memory(N), .wait = PICK(true, false)};
  CUdeviceptr n = new_memory(N);
  on_thread(fill_on_own_stream, &user);
  OK(cuMemcpyDtoDAsync_v2(n, user.m, N, CU_STREAM_PER_THREAD));
  expect(n, 7);
}

PAIR(legacy_work_between_streams_of_two_threads, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  struct user user = {.context = use(0), .m = new_memory(N)};
  CUdeviceptr n = new_memory(N), other = new_memory(N);
  on_thread(fill_on_own_stream, &user);
  WAIT(cuMemsetD32Async(other, 0, N / 4, CU_STREAM_LEGACY));
  OK(cuMemcpyDtoDAsync_v2(n, user.m, N, CU_STREAM_PER_THREAD));
  expect(n, 7);
}

PAIR(the_context_waits_for_the_stream_of_a_thread_that_ended, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  struct user user = {.context = use(0), .m = new_memory(N)};
  CUdeviceptr n = new_memory(N);
  on_thread(fill_on_own_stream, &user);
  WAIT(cuCtxSynchronize());
  OK(cuMemcpyDtoDAsync_v2(n, user.m, N, CU_STREAM_PER_THREAD));
  expect(n, 7);
}

/* In the per-thread stream a synchronous fill is after no other blocking stream, and the
 * host is not after it. */
PAIR(a_synchronous_fill_in_the_per_thread_stream, "cuMemsetD8", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_blocking_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8_v2_ptds(m, 7, N));
  WAIT(follow(s, CU_STREAM_PER_THREAD));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  expect(n, 7);
}

PAIR(a_synchronous_copy_in_the_per_thread_stream, "cuMemsetD8Async", "cuMemcpyDtoH", "") {
  use(0);
  CUstream s = new_blocking_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *out = new_pinned(N);
  OK(cuMemsetD8Async(m, 7, N, s));
  WAIT(follow(CU_STREAM_PER_THREAD, s));
  OK(cuMemcpyDtoH_v2_ptds(out, m, N));
  expect_host(out, 7);
}

PAIR(a_synchronous_copy_to_the_device_in_the_per_thread_stream, "cuMemcpyDtoDAsync", "cuMemcpyHtoD", "") {
  use(0);
  CUstream s = new_blocking_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  unsigned char *in = new_pinned(N);
  OK(cuMemsetD8Async(m, 7, N, s));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  WAIT(cuStreamSynchronize(s));
  OK(cuMemcpyHtoD_v2_ptds(m, in, N));
  expect(n, 7);
}

CORRECT(one_thread_has_one_default_stream, "") {
  use(0);
  CUdeviceptr m = new_memory(N);
  unsigned char *out = new_pinned(N);
  OK(cuMemsetD8Async_ptsz(m, 7, N, NULL));
  OK(cuMemcpyDtoH_v2_ptds(out, m, N));
  OK(cuMemsetD8Async(m, 8, N, CU_STREAM_PER_THREAD));
  expect_host(out, 7);
}

/* The legacy copy waits for the blocking stream of the thread that ended. */
CORRECT(a_legacy_copy_after_the_stream_of_a_thread_that_ended, "") {
  struct user user = {.context = use(0), .m = new_memory(N)};
  unsigned char *out = new_pageable(N);
  on_thread(fill_on_own_stream, &user);
  OK(cuMemcpyDtoH_v2(out, user.m, N));
  expect_host(out, 7);
}
