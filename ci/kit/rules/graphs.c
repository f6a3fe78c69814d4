/* Executable graphs, made by captures. */
#define GROUP "graphs"
#include "capture.h"

static CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = NULL;
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  made(EXECUTABLE, exec);
  OK(cuGraphDestroy(graph));
  return exec;
}

static CUgraphExec executable(CUstream s) { return instantiate(end(s)); }

static CUgraphExec setting(CUdeviceptr m, unsigned char value, size_t size) {
  CUstream s = capturing(RELAXED);
  OK(cuMemsetD8Async(m, value, size, s));
  return executable(s);
}

/* Whose launches wait at the gate first. */
static CUgraphExec setting_behind_the_gate(CUdeviceptr m, unsigned char value, size_t size) {
  CUstream s = capturing(RELAXED);
  close_gate(s);
  OK(cuMemsetD8Async(m, value, size, s));
  return executable(s);
}

/* ---- instantiating ---- */

RULE(instantiation_does_nothing_of_the_work, MANUAL,
     "cuGraphInstantiateWithFlags makes an executable graph and does none of its work.") {
  fill(m, 1, 64);
  CUgraphExec exec = setting(m, 2, 64);
  CHECK(exec != NULL);
  OK(cuCtxSynchronize());
  CHECK(is_filled(m, 1, 64));
}

RULE(
    flags_of_instantiation_are_checked, MANUAL,
    "cuGraphInstantiateWithFlags of an unknown flag, and without a graph or a place for the result, is INVALID_VALUE.") {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  OK(cuGraphCreate(&graph, 0));
  IS(cuGraphInstantiateWithFlags(&exec, graph, 1 << 20), CUDA_ERROR_INVALID_VALUE);
  IS(cuGraphInstantiateWithFlags(NULL, graph, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuGraphInstantiateWithFlags(&exec, NULL, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphDestroy(graph));
}

RULE(an_upload_at_instantiation_needs_a_stream, READING,
     "The flag UPLOAD of cuGraphInstantiateWithFlags, which has no stream for it, is INVALID_VALUE.", .alone = true) {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  OK(cuGraphCreate(&graph, 0));
  IS(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphDestroy(graph));
}

RULE(older_functions_instantiate, MANUAL, "cuGraphInstantiate of CUDA 10 and of 11 have room for an error.") {
  CUstream s = capturing(RELAXED);
  CUgraphExec first = NULL, second = NULL;
  CUgraphNode node = NULL;
  char log[64] = "";
  OK(cuMemsetD8Async(m, 2, 64, s));
  CUgraph graph = end(s);
  OK(cuGraphInstantiate(&first, graph, &node, log, sizeof log));
  OK(cuGraphInstantiate_v2(&second, graph, NULL, NULL, 0));
  CHECK(node == NULL && first != second);
  OK(cuGraphDestroy(graph));
  OK(cuGraphLaunch(first, s));
  OK(cuGraphLaunch(second, s));
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 2, 64));
  OK(cuGraphExecDestroy(first));
  OK(cuGraphExecDestroy(second));
}

RULE(instantiation_with_parameters_tells_its_result, MANUAL,
     "cuGraphInstantiateWithParams writes its result to the parameters, and uploads to their stream if asked.") {
  CUstream s = capturing(RELAXED);
  CUgraphExec exec = NULL;
  OK(cuMemsetD8Async(m, 2, 64, s));
  CUgraph graph = end(s);
  CUDA_GRAPH_INSTANTIATE_PARAMS p = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, .hUploadStream = s, .result_out = 9};
  OK(cuGraphInstantiateWithParams(&exec, graph, &p));
  SAME(p.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
  OK(cuGraphDestroy(graph));
  OK(cuGraphLaunch(exec, s));
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 2, 64));
  OK(cuGraphExecDestroy(exec));
}

RULE(a_graph_is_instantiated_during_its_capture, MANUAL,
     "The graph that a stream captures into is instantiated with what it has so far, and the capture goes on.",
     .alone = true) {
  int is;
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  fill(m, 1, 64);
  CUstream s = capturing(RELAXED);
  OK(cuMemsetD8Async(m, 2, 32, s));
  OK(cuStreamGetCaptureInfo_v2(s, &is, NULL, &graph, NULL, NULL));
  IS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  OK(cuMemsetD8Async(m + 32, 3, 32, s));
  end_active(s);
  OK(cuGraphLaunch(exec, a));
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 2, 32) && is_filled(m + 32, 1, 32));
  OK(cuGraphExecDestroy(exec));
}

/* ---- launching ---- */

RULE(each_launch_does_the_work, READING,
     "Each cuGraphLaunch does the work anew, also of a graph that was destroyed after its instantiation.") {
  CUgraphExec exec = setting(m, 2, 64);
  for (int i = 0; i < 3; i++) {
    fill(m, 1, 64);
    OK(cuGraphLaunch(exec, a));
    OK(cuStreamSynchronize(a));
    CHECK(is_filled(m, 2, 64));
  }
}

RULE(a_launch_comes_after_earlier_work_of_its_stream, MANUAL,
     "cuGraphLaunch returns at once, and is ordered behind previous work of its stream.") {
  fill(m, 1, 64);
  CUgraphExec exec = setting(m, 2, 64);
  close_gate(a);
  OK(cuMemsetD8Async(m, 3, 64, a));
  DOES_NOT_WAIT(cuGraphLaunch(exec, a));
  STAYS_PENDING(cuStreamQuery(a));
  CHECK(is_filled(m, 1, 64));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 2, 64));
}

RULE(later_work_of_the_stream_comes_after_a_launch, MANUAL,
     "Work queued behind a launch is done after all of the graph.") {
  fill(m, 1, 64);
  CUgraphExec exec = setting_behind_the_gate(m, 2, 64);
  OK(cuGraphLaunch(exec, a));
  OK(cuMemsetD8Async(m, 3, 32, a));
  STAYS_PENDING(cuStreamQuery(a));
  CHECK(is_filled(m, 1, 64));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 3, 32) && is_filled(m + 32, 2, 32));
}

RULE(launches_of_an_executable_graph_come_one_after_the_other, MANUAL,
     "A launch is ordered behind previous launches of the same executable graph, in other streams too.") {
  CUgraphExec exec = setting_behind_the_gate(m, 2, 64);
  OK(cuGraphLaunch(exec, a));
  OK(cuGraphLaunch(exec, b));
  OK(cuMemsetD8Async(m, 3, 64, b));
  STAYS_PENDING(cuStreamQuery(b));
  open_gate();
  OK(cuStreamSynchronize(b));
  CHECK(is_filled(m, 3, 64));
  IS(cuStreamQuery(a), CUDA_SUCCESS);
}

RULE(an_upload_is_ordered_behind_launches, MANUAL,
     "cuGraphUpload does none of the work, and is ordered behind previous launches of the executable graph.") {
  fill(m, 1, 64);
  CUgraphExec exec = setting_behind_the_gate(m, 2, 64);
  DOES_NOT_WAIT(cuGraphUpload(exec, b));
  DOES_NOT_WAIT(cuStreamSynchronize(b));
  CHECK(is_filled(m, 1, 64));
  OK(cuGraphLaunch(exec, a));
  OK(cuGraphUpload(exec, b));
  STAYS_PENDING(cuStreamQuery(b));
  open_gate();
  OK(cuStreamSynchronize(b));
  CHECK(is_filled(m, 2, 64));
}

RULE(a_launch_in_the_legacy_stream_follows_its_rule, MANUAL,
     "A launch in the legacy stream comes after earlier work of blocking streams, and before their later work.") {
  fill(m, 1, 64);
  CUgraphExec exec = setting(m, 2, 64);
  close_gate(x);
  OK(cuGraphLaunch(exec, NULL));
  OK(cuMemsetD8Async(m, 3, 32, y));
  STAYS_PENDING(cuStreamQuery(y));
  CHECK(is_filled(m, 1, 64));
  open_gate();
  OK(cuStreamSynchronize(y));
  CHECK(is_filled(m, 3, 32) && is_filled(m + 32, 2, 32));
}

RULE(a_launch_in_the_per_thread_stream, MANUAL, "Stream 0 of cuGraphLaunch_ptsz is the per-thread stream.") {
  fill(m, 1, 64);
  CUgraphExec exec = setting_behind_the_gate(m, 2, 64);
  OK(cuGraphLaunch_ptsz(exec, NULL));
  STAYS_PENDING(cuStreamQuery(CU_STREAM_PER_THREAD));
  open_gate();
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  CHECK(is_filled(m, 2, 64));
}

RULE(a_graph_without_nodes_is_launched, READING, "The launch of an empty graph has its place in the stream.") {
  CUgraph graph = NULL;
  OK(cuGraphCreate(&graph, 0));
  CUgraphExec exec = instantiate(graph);
  close_gate(a);
  OK(cuGraphLaunch(exec, a));
  STAYS_PENDING(cuStreamQuery(a));
}

RULE(an_executable_graph_in_flight_completes, MANUAL,
     "cuGraphExecDestroy does not terminate launches that are in flight.") {
  CUgraphExec exec = setting_behind_the_gate(m, 2, 64);
  fill(m, 1, 64);
  OK(cuGraphLaunch(exec, a));
  DOES_NOT_WAIT(cuGraphExecDestroy(exec));
  STAYS_PENDING(cuStreamQuery(a));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 2, 64));
}

RULE(a_destroyed_executable_graph_is_refused, READING,
     "Launch, upload and a second destruction of a destroyed executable graph are INVALID_VALUE.", .alone = true) {
  CUgraphExec exec = executable(capturing(RELAXED));
  OK(cuGraphExecDestroy(exec));
  IS(cuGraphLaunch(exec, a), CUDA_ERROR_INVALID_VALUE);
  IS(cuGraphUpload(exec, a), CUDA_ERROR_INVALID_VALUE);
  IS(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
}

/* ---- nodes ---- */

static void count_up(void* data) { ++*(atomic_int*)data; }

RULE(a_host_function_of_a_graph_is_called_at_each_launch, MANUAL,
     "A captured host function is called at each launch.") {
  static atomic_int calls;
  CUstream s = capturing(RELAXED);
  OK(cuLaunchHostFunc(s, count_up, &calls));
  CUgraphExec exec = executable(s);
  for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, s));
  OK(cuStreamSynchronize(s));
  SAME(calls, 3);
}

/* In a, what follows the fork comes after what b does. */
RULE(nodes_come_after_those_that_they_depend_on, MANUAL,
     "Work of a capture of two streams is done in the order of their events.") {
  fill(m, 1, 128);
  OK(cuStreamBeginCapture_v2(a, RELAXED));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  close_gate(b);
  OK(cuMemsetD8Async(m, 2, 64, b));
  OK(cuEventRecord(e, b));
  OK(cuStreamWaitEvent(a, e, 0));
  OK(cuMemsetD8Async(m + 32, 3, 64, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, 128, a));
  CUgraphExec exec = executable(a);
  OK(cuGraphLaunch(exec, a));
  STAYS_PENDING(cuStreamQuery(a));
  CHECK(is_filled(m, 1, 128));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(p, 2, 32) && all_bytes(p + 32, 3, 64) && all_bytes(p + 96, 1, 32));
}

RULE(a_graph_works_on_two_devices, MANUAL, "A graph has work of streams of several devices.", .needs = TWO) {
  use(1);
  CUstream far = new_stream();
  CUdeviceptr n = new_memory(64);
  use(0);
  CUstream s = capturing(RELAXED);
  CUevent e = new_event();
  CUdeviceptr m = new_memory(64);
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuEventRecord(e, s));
  use(1);
  CUevent back = new_event();
  OK(cuStreamWaitEvent(far, e, 0));
  OK(cuMemsetD8Async(n, 3, 64, far));
  OK(cuEventRecord(back, far));
  use(0);
  OK(cuStreamWaitEvent(s, back, 0));
  CUgraphExec exec = executable(s);
  OK(cuGraphLaunch(exec, s));
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 2, 64));
  use(1);
  CHECK(is_filled(n, 3, 64));
}

RULE(a_graph_copies_what_memory_holds_at_its_launch, READING,
     "A captured copy of pageable or page-locked memory reads it when the graph is done, and not at the capture.") {
  unsigned char *pageable = new_pages(4096), *to = new_pages(4096);
  memset(p, 1, 64);
  memset(pageable, 1, 64);
  OK(cuStreamBeginCapture_v2(a, RELAXED));
  OK(cuMemcpyHtoDAsync_v2(m, p, 64, a));
  OK(cuMemcpyHtoDAsync_v2(m + 64, pageable, 64, a));
  OK(cuMemcpyDtoHAsync_v2(to, m, 128, a));
  CUgraphExec exec = executable(a);
  for (unsigned char i = 2; i < 4; i++) {
    memset(p, i, 64);
    memset(pageable, i, 64);
    OK(cuGraphLaunch(exec, a));
    OK(cuStreamSynchronize(a));
    CHECK(all_bytes(to, i, 128));
  }
}

RULE(a_graph_records_an_event, MANUAL,
     "A record with the flag EXTERNAL in a capture records the event when the graph is launched.") {
  CUstream s = capturing(RELAXED);
  close_gate(s);
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL));
  CUgraphExec exec = executable(s);
  IS(cuEventQuery(e), CUDA_SUCCESS); /* never recorded */
  OK(cuGraphLaunch(exec, s));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD8Async(m, 3, 32, b));
  STAYS_PENDING(cuEventQuery(e));
  STAYS_PENDING(cuStreamQuery(b));
  open_gate();
  OK(cuEventSynchronize(e));
  OK(cuStreamSynchronize(b));
  CHECK(is_filled(m, 3, 32) && is_filled(m + 32, 2, 32));
}

RULE(a_graph_waits_for_an_event, MANUAL,
     "A wait with the flag EXTERNAL in a capture waits, at each launch, for the latest record of the event.") {
  CUstream s = capturing(RELAXED);
  OK(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL));
  OK(cuMemsetD8Async(m, 2, 64, s));
  CUgraphExec exec = executable(s);
  OK(cuGraphLaunch(exec, s)); /* for nothing: it was never recorded */
  OK(cuStreamSynchronize(s));
  fill(m, 1, 64);
  close_gate(b);
  OK(cuMemsetD8Async(m, 3, 64, b));
  OK(cuEventRecord(e, b));
  OK(cuGraphLaunch(exec, s));
  STAYS_PENDING(cuStreamQuery(s));
  open_gate();
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 2, 64));
}
