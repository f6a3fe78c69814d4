/* Host functions. */
#include "rules.h"

struct seen {
  unsigned char *p;
  unsigned char value;
  pthread_t thread;
  CUstream stream;
  CUresult status;
  atomic_bool called;
};

static void look(void *data) {
  struct seen *seen = data;
  seen->value = seen->p[0];
  seen->thread = pthread_self();
  seen->p[0] = 99;
  seen->called = true;
}

static void look_with_status(CUstream stream, CUresult status, void *data) {
  look(data);
  ((struct seen *)data)->stream = stream;
  ((struct seen *)data)->status = status;
}

RULE(a_host_function_is_between_what_is_before_and_after_it, "delay=500") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  struct seen seen = {.p = new_pinned(64)};
  OK(cuMemsetD8Async(m, 5, 64, s));
  OK(cuMemcpyDtoHAsync_v2(seen.p, m, 64, s));
  OK(cuLaunchHostFunc(s, look, &seen));
  OK(cuMemcpyHtoDAsync_v2(m, seen.p, 1, s));
  OK(cuStreamSynchronize(s));
  CHECK(seen.called && seen.value == 5);
  CHECK(!pthread_equal(seen.thread, pthread_self()));
  CHECK(is_filled(m, 99, 1));
  OK(cuMemFreeHost(seen.p));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_stream_callback_is_told_stream_and_status, "") {
  use(0);
  CUstream s = new_stream();
  unsigned char byte = 3;
  struct seen seen = {.p = &byte, .status = -1};
  OK(cuStreamAddCallback(s, look_with_status, &seen, 0));
  OK(cuStreamSynchronize(s));
  CHECK(seen.called && seen.value == 3 && seen.stream == s && seen.status == CUDA_SUCCESS);
  IS(cuStreamAddCallback(s, look_with_status, &seen, 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamDestroy_v2(s));
}

RULE(a_host_function_must_be_given, "") {
  use(0);
  IS(cuLaunchHostFunc(NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamAddCallback(NULL, NULL, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

static CUresult result_inside;
static CUevent event_inside;

static void call_the_driver(void *unused) {
  (void)unused;
  CUdeviceptr m;
  result_inside = cuMemAlloc_v2(&m, 64);
}

static void query_an_event(void *unused) {
  (void)unused;
  result_inside = cuEventQuery(event_inside);
}

static void call_back_the_driver(CUstream s, CUresult status, void *unused) {
  (void)s;
  (void)status;
  call_the_driver(unused);
}

RULE(a_host_function_that_calls_the_driver_is_a_violation, "", .violates = true) {
  use(0);
  CUstream s = new_stream();
  OK(cuLaunchHostFunc(s, call_the_driver, NULL));
  OK(cuStreamSynchronize(s));
  SAME(result_inside, CUDA_ERROR_NOT_PERMITTED);
  OK(cuStreamDestroy_v2(s));
}

RULE(a_host_function_that_asks_an_event_is_a_violation, "", .violates = true) {
  use(0);
  CUstream s = new_stream();
  event_inside = new_event();
  OK(cuLaunchHostFunc(s, query_an_event, NULL));
  OK(cuStreamSynchronize(s));
  SAME(result_inside, CUDA_ERROR_NOT_PERMITTED);
  OK(cuEventDestroy_v2(event_inside));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_stream_callback_that_calls_the_driver_is_a_violation, "", .violates = true) {
  use(0);
  OK(cuStreamAddCallback(NULL, call_back_the_driver, NULL, 0));
  OK(cuStreamSynchronize(NULL));
  SAME(result_inside, CUDA_ERROR_NOT_PERMITTED);
}
