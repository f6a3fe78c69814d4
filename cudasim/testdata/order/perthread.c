/* The per-thread default stream: a blocking stream that each thread has for itself. */
#include "order.h"

FILL_AND_COPY(per_thread_and_blocking_streams_are_not_ordered, CU_STREAM_PER_THREAD, x) {
  WAIT(follow(x, CU_STREAM_PER_THREAD));
}

FILL_AND_COPY(the_per_thread_stream_waits_for_another_one, a, CU_STREAM_PER_THREAD) {
  WAIT(follow(CU_STREAM_PER_THREAD, a));
}

/* It is ordered with the legacy stream; a non-blocking stream would not be. */
FILL_AND_COPY(per_thread_and_legacy_streams_are_ordered, PICK(CU_STREAM_PER_THREAD, a), CU_STREAM_LEGACY) {}

FILL_AND_COPY(the_per_thread_stream_is_after_the_legacy_stream, CU_STREAM_LEGACY, PICK(CU_STREAM_PER_THREAD, a)) {}

PAIR(the_host_waits_for_the_per_thread_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async_ptsz(m, 7, N, NULL));
  WAIT(cuStreamSynchronize_ptsz(NULL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 7);
}

/* The legacy stream is another one, unless the symbol is a per-thread variant. */
PAIR(the_host_asks_the_default_stream_of_the_thread, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async_ptsz(m, 7, N, NULL));
  OK(poll_stream(PICK(CU_STREAM_PER_THREAD, a)));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
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
  OK(cuMemsetD8_v2_ptds(m, 7, N));
  WAIT(follow(x, CU_STREAM_PER_THREAD));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, x));
  expect(n, 7);
}

PAIR(a_synchronous_copy_in_the_per_thread_stream, "cuMemsetD8Async", "cuMemcpyDtoH", "") {
  OK(cuMemsetD8Async(m, 7, N, x));
  WAIT(follow(CU_STREAM_PER_THREAD, x));
  OK(cuMemcpyDtoH_v2_ptds(p, m, N));
  expect_host(p, 7);
}

PAIR(a_synchronous_copy_to_the_device_in_the_per_thread_stream, "cuMemcpyDtoDAsync", "cuMemcpyHtoD", "") {
  OK(cuMemsetD8Async(m, 7, N, x));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, x));
  OK(cuStreamSynchronize(x));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, x));
  WAIT(cuStreamSynchronize(x));
  OK(cuMemcpyHtoD_v2_ptds(m, p, N));
  expect(n, 7);
}

CORRECT(one_thread_has_one_default_stream, "") {
  OK(cuMemsetD8Async_ptsz(m, 7, N, NULL));
  OK(cuMemcpyDtoH_v2_ptds(p, m, N));
  OK(cuMemsetD8Async(m, 8, N, CU_STREAM_PER_THREAD));
  expect_host(p, 7);
}

/* The legacy copy waits for the blocking stream of the thread that ended. */
CORRECT(a_legacy_copy_after_the_stream_of_a_thread_that_ended, "") {
  struct user user = {.context = use(0), .m = new_memory(N)};
  unsigned char *out = new_pageable(N);
  on_thread(fill_on_own_stream, &user);
  OK(cuMemcpyDtoH_v2(out, user.m, N));
  expect_host(out, 7);
}
