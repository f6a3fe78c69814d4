/* With the option threads, each thread of the host knows what it has waited for itself, and what it was told. */
#include "order.h"

#include <pthread.h>

struct waiter {
  CUcontext context;
  CUstream stream;
  atomic_bool begun, go, done, end;
};

static void *wait_for_stream(void *data) {
  struct waiter *w = data;
  OK(cuCtxSetCurrent(w->context)); /* its first call: from here on it learns alone */
  w->begun = true;
  await_flag(&w->go);
  OK(cuStreamSynchronize(w->stream));
  if (!wrong) cudasim_host_signal(w);
  w->done = true;
  await_flag(&w->end); /* its end tells all others */
  return NULL;
}

PAIR(a_wait_by_another_thread, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "threads=1") {
  struct waiter w = {.stream = a};
  OK(cuCtxGetCurrent(&w.context));
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, wait_for_stream, &w));
  await_flag(&w.begun);
  OK(cuMemsetD8Async(m, 7, N, a));
  w.go = true;
  await_flag(&w.done);
  mark();
  if (!wrong) cudasim_host_wait(&w);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  w.end = true;
  CHECK(!pthread_join(thread, NULL));
  expect(n, 7);
}

static void signal_and_raise(void *flag) {
  if (!wrong) cudasim_host_signal(flag);
  raise_flag(flag);
}

PAIR(a_host_function_tells_by_a_signal, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "threads=1") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuLaunchHostFunc(a, signal_and_raise, &flag));
  await_flag(&flag);
  mark();
  if (!wrong) cudasim_host_wait(&flag);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

static void *make_current(void *data) {
  const struct waiter *w = data;
  OK(cuCtxSetCurrent(w->context));
  return NULL;
}

/* A thread knows at its first call what the others know, and they know at its end what it knew. */
CORRECT(a_thread_begins_and_ends, "threads=1") {
  struct waiter w = {.stream = a};
  OK(cuCtxGetCurrent(&w.context));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuStreamSynchronize(a));
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, make_current, &w));
  CHECK(!pthread_join(thread, NULL));
  OK(cuMemsetD8Async(m, 8, N, b));
  expect(m, 8);
}
