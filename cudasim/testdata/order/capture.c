/* Captures that other calls and threads disturb, and handles that have ended. A program that goes on after the failure
 * has not what it captured. */
#include "order.h"

/* ---- captures ---- */

enum { GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL, LOCAL = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL };

static void begin(CUstream s, int mode) { OK(cuStreamBeginCapture_v2(s, mode)); }

static CUgraphExec end(CUstream s) {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  OK(cuStreamEndCapture(s, &graph));
  if (graph == NULL) return NULL;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  return exec;
}

/* What was captured in s: in wrong variants, nothing. */
static void end_and_launch(CUstream s) {
  CUgraphExec exec = end(s);
  if (exec == NULL) return;
  OK(cuGraphLaunch(exec, s));
  OK(cuGraphExecDestroy(exec));
}

static void end_on_thread(void *stream) {
  CUgraph graph = NULL;
  if (cuStreamEndCapture(stream, &graph) != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD || graph != NULL)
    stop("another thread ends the capture");
}

/* The capture is over after the first call, which fails: what follows is work of the stream, and runs at once. */
static void capture_in_another_thread(int mode) {
  begin(a, mode);
  mark();
  if (wrong) on_thread(end_on_thread, a);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  if (wrong) return;
  CUgraphExec exec = end(a);
  OK(follow(a, b));
  OK(cuGraphLaunch(exec, a));
  OK(cuGraphExecDestroy(exec));
  expect(m, 7);
}

PAIR(a_global_capture_that_another_thread_ends, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  capture_in_another_thread(GLOBAL);
}

PAIR(a_local_capture_that_another_thread_ends, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  capture_in_another_thread(LOCAL);
}

FAILS(a_capture_beside_an_allocation_from_a_pool, "cuStreamEndCapture", "") {
  CUdeviceptr memory = 0;
  mark();
  if (!wrong) memory = new_pooled(b);
  begin(a, GLOBAL);
  OK(cuMemsetD8Async(m, 7, N, a));
  if (wrong) OK(cuMemAllocAsync(&memory, N, b));
  end_and_launch(a);
  expect(m, 7);
}

FAILS(a_capture_beside_a_free_to_a_pool, "cuStreamEndCapture", "") {
  CUdeviceptr memory = allocate(N, b);
  begin(a, GLOBAL);
  OK(cuMemsetD8Async(m, 7, N, a));
  WRONG(cuMemFreeAsync(memory, b));
  end_and_launch(a);
  mark();
  OK(cuMemFreeAsync(memory, b));
  expect(m, 7);
}

FAILS(a_capture_beside_a_change_of_a_pool, "cuStreamEndCapture", "") {
  CUmemoryPool pool;
  uint64_t threshold = 4096;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  begin(a, GLOBAL);
  OK(cuMemsetD8Async(m, 7, N, a));
  WRONG(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  end_and_launch(a);
  RIGHT(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  expect(m, 7);
}

/* A synchronous copy is work of the legacy stream, which a blocking stream would have to come after. */
FAILS(a_capture_in_a_blocking_stream_beside_a_copy_to_the_host, "cuStreamEndCapture", "") {
  CUstream s = PICK(a, x);
  begin(s, GLOBAL);
  OK(cuMemsetD8Async(m, 7, N, s));
  OK(cuMemcpyDtoH_v2(p, n, N));
  end_and_launch(s);
  expect(m, 7);
}

FAILS(a_capture_in_a_blocking_stream_beside_a_copy_to_the_device, "cuStreamEndCapture", "") {
  CUstream s = PICK(a, x);
  begin(s, GLOBAL);
  OK(cuMemsetD8Async(m, 7, N, s));
  OK(cuMemcpyHtoD_v2(n, p, N));
  end_and_launch(s);
  expect(m, 7);
  expect(n, 1);
}

/* It is permitted, and no part of the capture: the launch comes after it by a wait alone. */
PAIR(a_fill_during_a_capture_is_no_part_of_it, "cuMemsetD8", "cuMemcpyDtoDAsync", "") {
  begin(a, GLOBAL);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  OK(cuMemsetD8_v2(m, 7, N));
  CUgraphExec exec = end(a);
  WAIT(cuStreamSynchronize(NULL));
  OK(cuGraphLaunch(exec, a));
  OK(cuGraphExecDestroy(exec));
  expect(n, 7);
}

/* The event stands for captured work, and for none after the capture. */
FAILS(a_wait_for_an_event_of_a_capture_that_has_ended, "cuStreamWaitEvent", "") {
  begin(a, GLOBAL);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  end_and_launch(a);
  RIGHT(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
}

/* The wait spoils the capture in which it is made. */
FAILS(a_capture_that_waits_for_an_event_of_one_before, "cuStreamEndCapture", "") {
  begin(a, GLOBAL);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  end_and_launch(a);
  begin(b, GLOBAL);
  WRONG(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  CUgraphExec exec = end(b);
  RIGHT(follow(b, a));
  if (exec == NULL) return;
  OK(cuGraphLaunch(exec, b));
  OK(cuGraphExecDestroy(exec));
  expect(n, 7);
}

/* ---- handles ---- */

/* An event that has ended in the wrong variant. */
static CUevent ended_early(void) {
  CUevent event = new_event();
  mark();
  if (wrong) OK(cuEventDestroy_v2(event));
  return event;
}

FAILS(a_record_of_a_destroyed_event, "cuEventRecord", "") { OK(cuEventRecord(ended_early(), a)); }
FAILS(a_query_of_a_destroyed_event, "cuEventQuery", "") { OK(cuEventQuery(ended_early())); }
FAILS(a_wait_for_a_destroyed_event, "cuStreamWaitEvent", "") { OK(cuStreamWaitEvent(a, ended_early(), 0)); }

FAILS(a_destruction_of_a_destroyed_event, "cuEventDestroy_v2", "") {
  CUevent event = ended_early();
  OK(cuEventDestroy_v2(event));
}

FAILS(a_query_of_a_stream_of_a_destroyed_context, "cuStreamQuery", "") {
  CUcontext context;
  CUstream s;
  OK(cuCtxCreate_v2(&context, 0, 0));
  OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  WRONG(cuCtxDestroy_v2(context));
  OK(cuStreamQuery(s));
  RIGHT(cuCtxDestroy_v2(context));
}

/* ---- host functions ---- */

static void ask(void *event) { (void)cuEventQuery(event); }
static void wait_for(void *event) { (void)cuEventSynchronize(event); }

/* Which a driver lets pass, and stands still in, if the event comes after the function. */
PAIR(a_host_function_that_asks_about_an_event, "cuEventQuery", "called", "") {
  WRONG(cuLaunchHostFunc(a, ask, e));
  OK(cuStreamSynchronize(a));
  RIGHT(cuEventQuery(e));
}

PAIR(a_host_function_that_waits_for_an_event, "cuEventSynchronize", "called", "") {
  WRONG(cuLaunchHostFunc(a, wait_for, e));
  OK(cuStreamSynchronize(a));
  RIGHT(cuEventSynchronize(e));
}
