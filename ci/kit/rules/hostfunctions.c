/* Host functions. */
#define GROUP "host functions"
#include "rules.h"

struct seen {
  unsigned char* p;
  unsigned char value;
  pthread_t thread;
  CUstream stream;
  CUresult status, inside;
  CUevent event;
  atomic_bool called;
};

static void look(void* data) {
  struct seen* seen = data;
  seen->value = seen->p[0];
  seen->thread = pthread_self();
  seen->p[0] = 99;
  seen->called = true;
}

static void look_with_status(CUstream stream, CUresult status, void* data) {
  struct seen* seen = data;
  look(data);
  seen->stream = stream;
  seen->status = status;
}

RULE(a_host_function_is_between_work_before_and_after_it, MANUAL,
     "A host function runs after earlier work of its stream and before later work of it.") {
  struct seen seen = {.p = new_pinned(64)};
  OK(cuMemsetD8Async(m, 5, 64, a));
  OK(cuMemcpyDtoHAsync_v2(seen.p, m, 64, a));
  OK(cuLaunchHostFunc(a, look, &seen));
  OK(cuMemcpyHtoDAsync_v2(m, seen.p, 1, a));
  OK(cuStreamSynchronize(a));
  CHECK(seen.called);
  SAME(seen.value, 5);
  CHECK(!pthread_equal(seen.thread, pthread_self()));
  CHECK(is_filled(m, 99, 1));
  OK(cuMemFreeHost(seen.p));
}

RULE(a_host_function_holds_its_stream_back, MANUAL,
     "Work after a host function waits until the function has returned.") {
  fill(m, 1, 64);
  close_gate(a);
  OK(cuMemsetD8Async(m, 2, 64, a));
  STAYS_PENDING(cuStreamQuery(a));
  CHECK(is_filled(m, 1, 64));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 2, 64));
}

RULE(queueing_a_host_function_does_not_wait, MANUAL, "cuLaunchHostFunc returns while work of the stream is pending.") {
  static unsigned char byte;
  struct seen seen = {.p = &byte};
  close_gate(a);
  DOES_NOT_WAIT(cuLaunchHostFunc(a, look, &seen));
  STAYS(!seen.called);
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(seen.called);
}

static struct {
  atomic_bool begun, may_end;
} blocked;

static void block(void* unused) {
  (void)unused;
  blocked.begun = true;
  while (!blocked.may_end) nap(1);
}

RULE(host_functions_run_one_after_the_other, SEEN,
     "While a host function has not returned, that of another stream is not called, and other work goes on.") {
  static unsigned char byte;
  struct seen seen = {.p = &byte};
  OK(cuLaunchHostFunc(a, block, NULL));
  while (!blocked.begun) nap(1);
  OK(cuLaunchHostFunc(b, look, &seen));
  fill(m, 1, 64);
  STAYS(!seen.called);
  STAYS_PENDING(cuStreamQuery(b));
  blocked.may_end = true;
  OK(cuStreamSynchronize(b));
  CHECK(seen.called);
}

RULE(host_functions_run_on_one_thread, READING, "The host functions of two streams are called by one thread.") {
  static unsigned char bytes[2];
  struct seen seen[2] = {{.p = &bytes[0]}, {.p = &bytes[1]}};
  OK(cuLaunchHostFunc(a, look, &seen[0]));
  OK(cuLaunchHostFunc(b, look, &seen[1]));
  OK(cuStreamSynchronize(a));
  OK(cuStreamSynchronize(b));
  CHECK(pthread_equal(seen[0].thread, seen[1].thread));
}

RULE(a_stream_callback_gets_stream_and_status, MANUAL,
     "A callback of cuStreamAddCallback gets the stream and its status.") {
  unsigned char byte = 3;
  struct seen seen = {.p = &byte, .status = CUDA_ERROR_UNKNOWN};
  OK(cuStreamAddCallback(a, look_with_status, &seen, 0));
  OK(cuStreamSynchronize(a));
  CHECK(seen.called && seen.value == 3);
  CHECK(seen.stream == a);
  SAME(seen.status, CUDA_SUCCESS);
  IS(cuStreamAddCallback(a, look_with_status, &seen, 1), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_host_function_must_be_given, READING,
     "cuLaunchHostFunc and cuStreamAddCallback of no function are INVALID_VALUE.", .alone = true) {
  IS(cuLaunchHostFunc(NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamAddCallback(NULL, NULL, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

static void allocate_inside(void* data) {
  struct seen* seen = data;
  CUdeviceptr m = 0;
  seen->inside = cuMemAlloc_v2(&m, 64);
  seen->called = true;
}

static void query_inside(void* data) {
  struct seen* seen = data;
  seen->inside = cuEventQuery(seen->event);
  seen->called = true;
}

static void synchronize_inside(void* data) {
  struct seen* seen = data;
  seen->inside = cuEventSynchronize(seen->event);
  seen->called = true;
}

static void current_inside(void* data) {
  struct seen* seen = data;
  CUcontext context;
  seen->inside = cuCtxGetCurrent(&context);
  seen->called = true;
}

static void callback_inside(CUstream s, CUresult status, void* data) {
  (void)s, (void)status;
  allocate_inside(data);
}

/* A driver that does not refuse the call may wait in it for the function itself: the rule then does not end. */
static void is_not_permitted(const char* call, CUhostFn function) {
  CUstream s = new_stream();
  static struct seen seen;
  seen.event = new_event();
  OK(cuLaunchHostFunc(s, function, &seen));
  OK(cuStreamSynchronize(s));
  CHECK(seen.called);
  check_result(call, seen.inside, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
}

RULE(a_host_function_may_not_allocate, MANUAL, "cuMemAlloc in a host function is NOT_PERMITTED.", .alone = true,
     .violates = true) {
  is_not_permitted("cuMemAlloc", allocate_inside);
}
RULE(a_host_function_may_not_query_an_event, MANUAL, "cuEventQuery in a host function is NOT_PERMITTED.", .alone = true,
     .violates = true, .driver = "let it pass") {
  is_not_permitted("cuEventQuery", query_inside);
}
RULE(a_host_function_may_not_wait_for_an_event, MANUAL, "cuEventSynchronize in a host function is NOT_PERMITTED.",
     .alone = true, .violates = true, .driver = "let it pass") {
  is_not_permitted("cuEventSynchronize", synchronize_inside);
}
RULE(a_host_function_may_not_ask_for_its_context, MANUAL, "cuCtxGetCurrent in a host function is NOT_PERMITTED.",
     .alone = true, .violates = true) {
  is_not_permitted("cuCtxGetCurrent", current_inside);
}

RULE(a_stream_callback_may_not_call_the_driver, MANUAL, "cuMemAlloc in a stream callback is NOT_PERMITTED.",
     .alone = true, .violates = true) {
  static struct seen seen;
  OK(cuStreamAddCallback(NULL, callback_inside, &seen, 0));
  OK(cuStreamSynchronize(NULL));
  CHECK(seen.called);
  check_result("cuMemAlloc", seen.inside, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
}
