/* What a launch of a graph leaves behind, costs and reports, and what is not simulated. */
#include "simulator.h"

static CUgraphExec executable(CUstream s) {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  OK(cuStreamEndCapture(s, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  return exec;
}

static CUgraphExec setting(CUdeviceptr m, size_t size, CUstream s) {
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemsetD8Async(m, 7, size, s));
  return executable(s);
}

SIMULATED(leaked_executable_graphs_are_reported, "") {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  CUgraphExec exec = setting(m, 64, s);
  SAME(reported("executable_graphs", 0), 1);
  SAME(reported("graphs", 0), 0);
  SAME(reported("streams", 0), 1);
  CHECK(reports("leaks", "cuGraphInstantiateWithFlags: 0x"));
  OK(cuGraphExecDestroy(exec));
  SAME(reported("executable_graphs", 0), 0);
  CHECK(!reports("leaks", "cuGraph"));
}

SIMULATED(bytes_of_each_launch_are_counted, "") {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  CUgraphExec exec = setting(m, 64, s);
  SAME(reported("memset", 0), 0);
  for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, s));
  OK(cuStreamSynchronize(s));
  SAME(reported("memset", 0), 3 * 64);
}

SIMULATED(violations_name_capture_and_launch, "", .races = true, .violates = true) {
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(64);
  CUgraphExec exec = setting(m, 64, a);
  OK(cuGraphLaunch(exec, b));
  OK(cuMemsetD16Async(m, 7, 32, a));
  OK(cuCtxSynchronize());
  CHECK(reports("violations",
                "cuMemsetD8Async, captured in stream 1 of GPU 0 and launched by cuGraphLaunch in stream 2 of GPU 0"));
  CHECK(reports("violations", "call cuEventRecord in stream 2 of GPU 0 after cuGraphLaunch"));
}

static void set_twice(CUdeviceptr m, CUstream a, CUstream b) {
  OK(cuMemsetD8Async(m, 1, 64, a));
  OK(cuMemsetD8Async(m, 2, 64, b));
}

/* Two that lack a wait within the capture, and so are two of a kind in all but their places. */
SIMULATED(violations_of_nodes_tell_where_they_were_captured, "stacks=2", .races = true, .violates = true) {
  CUstream a = new_stream(), b = new_stream();
  CUevent fork = new_event(), join = new_event();
  CUdeviceptr m = new_memory(64), n = new_memory(64);
  OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecord(fork, a));
  OK(cuStreamWaitEvent(b, fork, 0));
  set_twice(m, a, b);
  OK(cuMemsetD8Async(n, 1, 64, a));
  OK(cuMemsetD8Async(n, 2, 64, b));
  OK(cuEventRecord(join, b));
  OK(cuStreamWaitEvent(a, join, 0));
  OK(cuGraphLaunch(executable(a), a));
  CHECK(reports("violations", "; the earlier was captured at rules("));
  CHECK(reports("violations", "; the later was captured at rules("));
  CHECK(!reports("violations", "; 2 times"));
  CHECK(!reports("violations", " launched at "));
  OK(cuMemsetD8Async(m, 3, 64, b));
  CHECK(reports("violations", "; the earlier was launched at rules("));
  OK(cuCtxSynchronize());
}

SIMULATED(a_graph_that_uses_freed_memory_is_not_launched, "", .violates = true) {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  CUgraphExec exec = setting(m, 64, s);
  OK(cuMemFree_v2(m));
  IS(cuGraphLaunch(exec, s), CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(reports("violations", "cuMemsetD8Async, captured in stream 1 of GPU 0, uses memory"));
  IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

WITH_OBJECTS(memory_of_a_graph_is_freed_after_its_launch, "delay=1000") {
  CUgraphExec exec = setting(m, 64, a);
  OK(cuGraphLaunch(exec, a));
  OK(cuMemFree_v2(m)); /* waits */
  OK(cuStreamSynchronize(a));
}

WITH_OBJECTS(a_graph_of_a_destroyed_event_is_not_launched, "") {
  OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecordWithFlags(e, a, CU_EVENT_RECORD_EXTERNAL));
  CUgraphExec exec = executable(a);
  OK(cuGraphLaunch(exec, a));
  OK(cuEventDestroy_v2(e));
  IS(cuGraphLaunch(exec, a), CUDA_ERROR_INVALID_HANDLE);
  OK(cuStreamSynchronize(a));
}

SIMULATED(a_graph_of_a_destroyed_context_is_not_launched, "") {
  CUcontext context;
  CUstream s = new_stream();
  OK(cuCtxCreate_v2(&context, 0, 0));
  CUstream other = new_stream();
  CUgraphExec exec = setting(new_memory(64), 64, other);
  OK(cuCtxDestroy_v2(context));
  use(0);
  IS(cuGraphLaunch(exec, s), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

/* On a driver it becomes a child graph. */
WITH_OBJECTS(a_launch_is_not_captured, "") {
  CUgraph graph = NULL;
  int status = -1;
  CUgraphExec exec = setting(m, 64, a);
  OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  IS(cuGraphLaunch(exec, a), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuGraphLaunch(exec, x)); /* which captures nothing */
  OK(cuStreamIsCapturing(a, &status));
  SAME(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cuStreamEndCapture(a, &graph));
  OK(cuGraphDestroy(graph));
  OK(cuStreamBeginCapture_v2(x, CU_STREAM_CAPTURE_MODE_RELAXED));
  IS(cuGraphLaunch(exec, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  IS(cuStreamEndCapture(x, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

SIMULATED(a_graph_is_not_launched_by_a_device, "") {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  OK(cuGraphCreate(&graph, 0));
  IS(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_NOT_SUPPORTED);
  CUDA_GRAPH_INSTANTIATE_PARAMS p = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH};
  IS(cuGraphInstantiateWithParams(&exec, graph, &p), CUDA_ERROR_NOT_SUPPORTED);
  SAME(p.result_out, CUDA_GRAPH_INSTANTIATE_ERROR);
}

/* ---- costs ---- */

static long resident(void) { /* in kilobytes */
  long kilobytes = 0;
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory for long */
  char line[128];
  FILE *f = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, f) != NULL) sscanf(line, "VmRSS: %ld", &kilobytes);
  fclose(f);
#endif
  return kilobytes;
}

/* Two lanes, an event of the program, and no wait of the host but one in a hundred. */
SIMULATED(a_graph_is_launched_ten_thousand_times, "") {
  measures_memory();
  enum { times = 10000 };
  CUstream a = new_stream(), b = new_stream();
  CUevent fork = new_event(), join = new_event(), e = new_event();
  CUdeviceptr m = new_memory(128);
  OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuEventRecord(fork, a));
  OK(cuStreamWaitEvent(b, fork, 0));
  OK(cuMemsetD8Async(m, 7, 64, a));
  OK(cuMemsetD8Async(m + 64, 7, 64, b));
  OK(cuEventRecord(join, b));
  OK(cuStreamWaitEvent(a, join, 0));
  OK(cuMemcpyDtoDAsync_v2(m, m + 64, 64, a));
  OK(cuEventRecordWithFlags(e, a, CU_EVENT_RECORD_EXTERNAL));
  CUgraphExec exec = executable(a);
  long before = 0;
  for (int i = 0; i < times; i++) {
    OK(cuGraphLaunch(exec, i % 3 == 0 ? a : b));
    if (i % 100 == 0) OK(cuEventSynchronize(e));
    if (i == times / 10) before = resident();
  }
  OK(cuCtxSynchronize());
  CHECK(resident() - before < 5000);
  SAME(reported("memset", 0), times * 128);
}

/* Their lanes take the places of those before in the clocks, and their threads end. */
SIMULATED(executable_graphs_that_were_destroyed_cost_nothing, "") {
  measures_memory();
  enum { times = 5000 };
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  long before = 0;
  for (int i = 0; i < times; i++) {
    CUgraphExec exec = setting(m, 64, s);
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphExecDestroy(exec));
    OK(cuStreamSynchronize(s));
    if (i == times / 5) before = resident();
  }
  CHECK(resident() - before < 5000);
}
