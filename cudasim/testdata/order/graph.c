/* Graphs: a launch is work of its stream, and its nodes are ordered among themselves by the capture alone. */
#include "order.h"

static void begin(CUstream s) { OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED)); }

/* The captured work, to be launched. */
static CUgraphExec end(CUstream s) {
  CUgraph graph;
  CUgraphExec exec;
  OK(cuStreamEndCapture(s, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  made(EXECUTABLE, exec);
  OK(cuGraphDestroy(graph));
  return exec;
}

/* Work that is under way completes. */
static void launch_once(CUgraphExec exec, CUstream s) {
  OK(cuGraphLaunch(exec, s));
  OK(cuGraphExecDestroy(exec));
}

/* Captures in two streams: the second comes after the first, and is joined at the end. */
static void begin_two(CUstream first, CUstream second) {
  begin(first);
  OK(follow(second, first));
}

static void join_and_launch(CUstream first, CUstream second) {
  OK(follow(first, second));
  launch_once(end(first), first);
}

static CUgraphExec setting(CUdeviceptr m, unsigned char value) {
  CUstream s = new_stream();
  begin(s);
  OK(cuMemsetD8Async(m, value, N, s));
  return end(s);
}

static CUgraphExec copying(CUdeviceptr to, CUdeviceptr from) {
  CUstream s = new_stream();
  begin(s);
  OK(cuMemcpyDtoDAsync_v2(to, from, N, s));
  return end(s);
}

/* ---- nodes ---- */

PAIR(a_node_after_one_of_another_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  begin_two(a, b);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  join_and_launch(a, b);
  expect(n, 7);
}

PAIR(a_node_after_one_of_a_third_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  begin_two(a, b);
  OK(follow(c, a));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(follow(b, a));
  OK(cuMemsetD16Async(o, 7, N / 2, b));
  WAIT(follow(c, b));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
  OK(follow(a, b));
  OK(follow(a, c));
  launch_once(end(a), a);
  expect(n, 7);
}

PAIR(two_nodes_write, "cuMemsetD8Async", "cuMemsetD16Async", "") {
  begin_two(a, b);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemsetD16Async(PICK(n, m), 7, N / 2, b));
  join_and_launch(a, b);
  expect(m, 7);
}

PAIR(a_node_writes_what_another_reads, "cuMemcpyDtoDAsync", "cuMemsetD8Async", "") {
  OK(cuMemsetD16Async(m, 0x0808, N / 2, a));
  begin_two(a, b);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  WAIT(follow(b, a));
  OK(cuMemsetD8Async(m, 7, N, b));
  join_and_launch(a, b);
  expect(n, 8);
}

CORRECT(two_nodes_read, "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  begin_two(a, b);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  OK(cuMemcpyDtoDAsync_v2(o, m, N, b));
  join_and_launch(a, b);
  expect(n, 7);
  expect(o, 7);
}

PAIR(a_node_of_another_device, "cuMemsetD8Async", "cuMemcpyAsync", "devices=2") {
  use(1);
  CUstream far = new_stream();
  CUdeviceptr n = new_memory(N);
  expect(n, 7);
  use(0);
  CUstream a = new_stream();
  CUdeviceptr m = new_memory(N);
  begin(a);
  OK(follow(far, a));
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(far, a));
  use(1);
  OK(cuMemcpyAsync(n, m, N, far));
  CUevent e = new_event();
  OK(cuEventRecord(e, far));
  use(0);
  OK(cuStreamWaitEvent(a, e, 0));
  launch_once(end(a), a);
}

/* ---- launches ---- */

PAIR(a_launch_after_work_of_another_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUgraphExec copy = copying(n, m);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(b, a));
  launch_once(copy, b);
  expect(n, 7);
}

PAIR(work_of_another_stream_after_a_launch, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  launch_once(setting(m, 7), a);
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

CORRECT(a_launch_is_work_of_its_stream, "") {
  CUgraphExec copy = copying(n, m);
  OK(cuMemsetD8Async(m, 7, N, a));
  launch_once(copy, a);
  OK(cuMemcpyDtoDAsync_v2(o, n, N, a));
  expect(o, 7);
}

/* All of it, not the lane that ends the graph. */
PAIR(the_end_of_a_launch_is_that_of_all_its_nodes, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  begin_two(a, b);
  OK(cuMemsetD16Async(o, 7, N / 2, a));
  OK(cuMemsetD8Async(m, 7, N, b));
  join_and_launch(a, b);
  WAIT(follow(c, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
  expect(n, 7);
}

PAIR(a_launch_after_a_launch_of_another_graph, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUgraphExec set = setting(m, 7), copy = copying(n, m);
  launch_once(set, a);
  WAIT(follow(b, a));
  launch_once(copy, b);
  expect(n, 7);
}

/* The manual: an executable graph does not run concurrently with itself. */
PAIR(launches_of_one_executable_graph, "cuMemsetD8Async", "cuMemsetD8Async", "") {
  CUgraphExec x = setting(m, 7), y = setting(m, 7);
  OK(cuGraphLaunch(x, a));
  OK(cuGraphLaunch(PICK(x, y), b));
  expect(m, 7);
}

/* And the stream of the later launch comes after that of the earlier. */
PAIR(work_after_the_second_launch, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUgraphExec x = setting(o, 7);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuGraphLaunch(x, a));
  WAIT(cuGraphLaunch(x, b));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(an_upload_comes_after_launches, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUgraphExec x = setting(m, 7);
  OK(cuGraphLaunch(x, a));
  WAIT(cuGraphUpload(x, b));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* Nodes of the second launch that begin it come after those that end the first. */
CORRECT(launched_again_and_again, "") {
  OK(cuMemsetD8Async(m, 8, N, a));
  begin(a);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  OK(follow(b, a));
  OK(cuMemsetD8Async(m, 7, N, b));
  OK(follow(a, b));
  CUgraphExec x = end(a);
  for (int i = 0; i < 5; i++) OK(cuGraphLaunch(x, i < 3 ? a : c));
  expect(n, 7);
}

PAIR(a_launch_in_a_blocking_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  launch_once(setting(m, 7), PICK(x, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, NULL));
  expect(n, 7);
}

PAIR(a_launch_in_the_legacy_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUgraphExec copy = copying(n, m);
  OK(cuMemsetD8Async(m, 7, N, PICK(x, a)));
  launch_once(copy, NULL);
  OK(cuMemcpyDtoDAsync_v2(o, n, N, y));
  expect(o, 7);
}

/* ---- the host ---- */

PAIR(the_host_waits_for_a_launch, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  launch_once(setting(m, 7), a);
  WAIT(cuStreamSynchronize(a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(the_host_waited_before_a_launch, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUgraphExec copy = copying(n, m);
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuStreamSynchronize(a));
  launch_once(copy, b);
  WRONG(cuStreamSynchronize(a));
  expect(n, 7);
}

PAIR(the_host_reads_what_a_graph_wrote, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  begin(a);
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  launch_once(end(a), a);
  WAIT(cuStreamSynchronize(a));
  cudasim_host_read(p, N);
  expect_host(p, 7);
}

CHANGES(a_source_that_a_graph_reads, "cuMemcpyHtoDAsync", "") {
  memset(p, 7, N);
  begin(a);
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  launch_once(end(a), a);
  WAIT(cuStreamSynchronize(a));
  memset(p, 8, N);
  expect(m, 7);
}

/* A launch reads no pageable memory ahead. */
CHANGES(a_pageable_source_that_a_graph_reads, "cuMemcpyHtoDAsync", "pageable_async=*") {
  unsigned char *p = new_pageable(N);
  begin(a);
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  CUgraphExec x = end(a);
  memset(p, 7, N);
  launch_once(x, a);
  WAIT(cuStreamSynchronize(a));
  memset(p, 8, N);
  expect(m, 7);
}

READS_GARBAGE(a_pageable_destination_of_a_graph, "pageable_async=*") {
  unsigned char *p = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  begin(a);
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  launch_once(end(a), a);
  WAIT(cuStreamSynchronize(a));
  SAME(p[0], wrong ? 0xa5 : 7);
}

/* From the end of the function on, the host counts as after what came before it in the graph. */
CORRECT(the_host_waits_for_a_function_of_a_graph, "") {
  use(0);
  begin(a);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuLaunchHostFunc(a, raise_flag, &flag));
  launch_once(end(a), a);
  await_flag(&flag);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* The function waits for the host, so that nothing is learned from its end. */
PAIR(a_node_after_a_host_function, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  begin_two(a, b);
  OK(cuLaunchHostFunc(a, await_flag, &flag));
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  join_and_launch(a, b);
  flag = true;
  expect(n, 7);
}

/* ---- events ---- */

PAIR(a_wait_for_an_event_that_a_graph_records, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  begin(a);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecordWithFlags(e, a, CU_EVENT_RECORD_EXTERNAL));
  launch_once(end(a), a);
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(a_graph_records_an_event_after_its_work, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  begin(a);
  WRONG(cuEventRecordWithFlags(e, a, CU_EVENT_RECORD_EXTERNAL));
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuEventRecordWithFlags(e, a, CU_EVENT_RECORD_EXTERNAL));
  launch_once(end(a), a);
  OK(cuEventSynchronize(e));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(a_graph_waits_for_an_event, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  begin(b);
  WAIT(cuStreamWaitEvent(b, e, CU_EVENT_WAIT_EXTERNAL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  CUgraphExec x = end(b);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a)); /* the latest record at the launch counts */
  launch_once(x, b);
  expect(n, 7);
}

/* What comes after the wait in another stream of the capture has waited, too: also for a complete event. */
PAIR(a_node_after_a_wait_of_another_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  begin_two(a, b);
  OK(cuStreamWaitEvent(a, e, CU_EVENT_WAIT_EXTERNAL));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  OK(follow(a, b));
  CUgraphExec x = end(a);
  OK(cuMemsetD8Async(m, 7, N, c));
  OK(cuEventRecord(e, c));
  launch_once(x, a);
  expect(n, 7);
}

/* As a record in a stream counts for all that is queued later. */
PAIR(a_graph_waits_for_a_record_of_its_own, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  begin_two(a, b);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecordWithFlags(e, a, CU_EVENT_RECORD_EXTERNAL));
  WAIT(cuStreamWaitEvent(b, e, CU_EVENT_WAIT_EXTERNAL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  join_and_launch(a, b);
  expect(n, 7);
}
