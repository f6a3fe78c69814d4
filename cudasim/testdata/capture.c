/* Stream capture. */
#include "capture.h"

#include <sys/mman.h>
#include <unistd.h>

static size_t node_count(CUgraph graph) {
  size_t count = 99;
  OK(cuGraphGetNodes(graph, NULL, &count));
  return count;
}

RULE(captured_work_is_not_done_and_becomes_a_graph, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char *p = new_pinned(64);
  memset(p, 1, 64);
  OK(cuMemsetD8_v2(m, 1, 64));
  OK(cuCtxSynchronize());
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  SAME(status(s), ACTIVE);
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuMemcpyDtoHAsync_v2(p, m, 64, s));
  OK(cuMemsetD32Async(m, 3, 16, s));
  CUgraph graph = end(s);
  SAME(status(s), NONE);
  CUgraphNode nodes[5];
  size_t count = 5;
  int types[3];
  OK(cuGraphGetNodes(graph, nodes, &count));
  SAME(count, 3);
  CHECK(nodes[3] == NULL && nodes[4] == NULL);
  for (int i = 0; i < 3; i++) OK(cuGraphNodeGetType(nodes[i], &types[i]));
  SAME(types[0], 2); /* fill */
  SAME(types[1], 1); /* copy */
  SAME(types[2], 2);
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes(p, 1, 64));
  CHECK(is_filled(m, 1, 64));
  SAME(reported("graphs", 0), 1);
  OK(cuGraphDestroy(graph));
  SAME(reported("graphs", 0), 0);
  IS(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  IS(cuGraphNodeGetType(nodes[0], types), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
  OK(cuMemFreeHost(p));
}

static void count_up(void *data) { ++*(atomic_int *)data; }

static void count_callback(CUstream stream, CUresult result, void *data) {
  (void)stream, (void)result;
  ++*(atomic_int *)data;
}

RULE(a_captured_host_function_is_not_called, "") {
  use(0);
  CUstream s = capturing(GLOBAL);
  atomic_int calls = 0;
  OK(cuLaunchHostFunc(s, count_up, &calls));
  CUgraph graph = end(s);
  SAME(node_count(graph), 1);
  OK(cuStreamSynchronize(s));
  SAME(calls, 0);
  OK(cuLaunchHostFunc(s, count_up, &calls));
  OK(cuStreamSynchronize(s));
  SAME(calls, 1);
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(s));
}

RULE(callbacks_and_prefetches_cannot_be_captured, "") {
  use(0);
  CUdeviceptr m;
  OK(cuMemAllocManaged(&m, 64, CU_MEM_ATTACH_GLOBAL));
  CUstream s = capturing(GLOBAL);
  atomic_int calls = 0;
  IS(cuStreamAddCallback(s, count_callback, &calls, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(s);
  SAME(calls, 0);
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  IS(cuMemPrefetchAsync(m, 64, 0, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(s);
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

RULE(work_before_a_capture_goes_on_and_work_after_it_comes_after_that, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  struct gate gate;
  close_gate(&gate, s);
  OK(cuMemsetD8Async(m, 1, 64, s));
  OK(cuStreamBeginCapture_v2(s, RELAXED));
  OK(cuMemsetD8Async(m, 2, 64, s));
  CUgraph graph = end(s);
  STAYS_PENDING(cuStreamQuery(s));
  OK(cuMemsetD8Async(m + 32, 3, 32, s));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 1, 32) && is_filled(m + 32, 3, 32));
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

/* Neither read nor waited for: the middle of the source cannot be read, and the gate is closed. */
RULE(pageable_memory_is_neither_read_nor_written_by_a_capture, "") {
  use(0);
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(3 * page);
  struct gate gate;
  char *from = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(from != MAP_FAILED && !mprotect(from + page, page, PROT_NONE));
  char to[64] = {7};
  close_gate(&gate, s);
  OK(cuStreamBeginCapture_v2(s, RELAXED));
  OK(cuMemcpyHtoDAsync_v2(m, from, 3 * page, s));
  OK(cuMemcpyDtoHAsync_v2(to, m, sizeof to, s));
  CUgraph graph = end(s);
  SAME(node_count(graph), 2);
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  SAME(to[0], 7);
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
  CHECK(!munmap(from, 3 * page));
}

RULE(a_capture_is_not_begun_twice_nor_in_the_legacy_stream, "") {
  use(0);
  CUstream s = new_stream();
  CUgraph graph;
  IS(cuStreamBeginCapture_v2(NULL, GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  IS(cuStreamBeginCapture_v2(CU_STREAM_LEGACY, GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  IS(cuStreamBeginCapture_v2(s, 3), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamBeginCapture_v2(s, -1), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
  OK(cuStreamBeginCapture(s));
  IS(cuStreamBeginCapture_v2(s, GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
  IS(cuStreamEndCapture(s, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphDestroy(end(s)));
  IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
  OK(cuStreamDestroy_v2(s));
}

RULE(the_per_thread_stream_can_be_captured, "") {
  use(0);
  CUdeviceptr m = new_memory(64);
  CUgraph graph;
  OK(cuStreamBeginCapture_v2_ptsz(NULL, GLOBAL));
  OK(cuMemsetD8Async_ptsz(m, 2, 64, NULL));
  SAME(status(CU_STREAM_PER_THREAD), ACTIVE);
  OK(cuStreamEndCapture_ptsz(NULL, &graph));
  SAME(node_count(graph), 1);
  OK(cuGraphDestroy(graph));
  OK(cuMemFree_v2(m));
}

RULE(a_capture_is_told_about, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  int is = -1;
  uint64_t id = 0, other = 0;
  size_t count = 9;
  CUgraph graph = NULL, ended;
  const CUgraphNode *nodes = NULL;
  const void *edges = NULL;
  OK(cuStreamGetCaptureInfo(s, &is, &id));
  SAME(is, NONE);
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  OK(cuStreamGetCaptureInfo(s, &is, &id));
  SAME(is, ACTIVE);
  OK(cuStreamGetCaptureInfo_v2(s, &is, NULL, NULL, NULL, &count));
  SAME(count, 0);
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuStreamGetCaptureInfo_v2(s, &is, &other, &graph, &nodes, &count));
  CHECK(other == id && graph != NULL);
  SAME(count, 1);
  CUgraphNode all[2];
  size_t room = 2;
  OK(cuGraphGetNodes(graph, all, &room));
  CHECK(nodes[0] == all[1]);
  IS(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE); /* while it is captured into */
  OK(cuStreamGetCaptureInfo_v3(s, &is, NULL, NULL, &nodes, &edges, &count));
  CHECK(all_bytes(edges, 0, 8));
  IS(cuStreamGetCaptureInfo_v3(s, &is, NULL, NULL, NULL, &edges, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamGetCaptureInfo(s, NULL, &id), CUDA_ERROR_INVALID_VALUE);
  SAME(reported("graphs", 0), 0);
  ended = end(s);
  CHECK(ended == graph);
  OK(cuGraphDestroy(ended));
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  OK(cuStreamGetCaptureInfo(s, &is, &other));
  CHECK(other != id);
  OK(cuGraphDestroy(end(s)));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

/* ---- streams and events ---- */

RULE(a_stream_that_waits_for_a_captured_event_joins_the_capture, "devices=2") {
  use(1);
  CUstream far = new_stream();
  CUdeviceptr there = new_memory(64);
  use(0);
  CUstream a = new_stream(), b = new_blocking_stream();
  CUevent fork = new_event(), join = new_event();
  CUdeviceptr m = new_memory(64);
  uint64_t id, other;
  int is;
  size_t count;
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuMemsetD8Async(m, 1, 64, a));
  OK(cuEventRecord(fork, a));
  SAME(status(b), NONE);
  OK(cuStreamWaitEvent(b, fork, 0));
  OK(cuStreamWaitEvent(far, fork, 0));
  SAME(status(b), ACTIVE);
  OK(cuStreamGetCaptureInfo(a, &is, &id));
  OK(cuStreamGetCaptureInfo(b, &is, &other));
  CHECK(id == other);
  OK(cuMemsetD8Async(m, 2, 32, b));
  OK(cuMemsetD8Async(m + 32, 3, 32, a));
  OK(cuEventRecord(join, b));
  OK(cuStreamWaitEvent(a, join, 0));
  OK(cuStreamGetCaptureInfo_v2(a, &is, NULL, NULL, NULL, &count));
  SAME(count, 2);
  OK(cuMemsetD8Async(there, 2, 32, far));
  CUgraph graph = (CUgraph)a;
  IS(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  CHECK(graph == NULL);
  end_invalidated(a);
  SAME(status(b), NONE);
  SAME(status(far), NONE);
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuStreamDestroy_v2(far));
  OK(cuEventDestroy_v2(fork));
  OK(cuEventDestroy_v2(join));
  OK(cuMemFree_v2(m));
  OK(cuMemFree_v2(there));
}

static void fork_and_join(bool work, bool joined, CUresult want) {
  use(0);
  CUstream a = new_stream(), b = new_stream(), c = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(64);
  CUgraph graph = NULL;
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  if (work) OK(cuMemsetD8Async(m, 2, 64, b));
  OK(cuEventRecord(e, b));
  OK(cuStreamWaitEvent(c, e, 0)); /* joined by way of a third stream */
  OK(cuEventRecord(e, c));
  if (joined) OK(cuStreamWaitEvent(a, e, 0));
  IS(cuStreamEndCapture(a, &graph), want);
  CHECK((graph == NULL) == (want != CUDA_SUCCESS));
  SAME(status(a), NONE);
  SAME(status(b), NONE);
  SAME(status(c), NONE);
  if (graph != NULL) OK(cuGraphDestroy(graph));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuStreamDestroy_v2(c));
  OK(cuMemFree_v2(m));
}

RULE(a_joined_fork_is_part_of_the_graph, "") { fork_and_join(true, true, CUDA_SUCCESS); }
RULE(a_fork_with_work_must_be_joined, "") { fork_and_join(true, false, CUDA_ERROR_STREAM_CAPTURE_UNJOINED); }
RULE(a_fork_without_work_need_not_be_joined, "") { fork_and_join(false, false, CUDA_SUCCESS); }

RULE(work_queued_in_a_fork_after_its_join_is_not_joined, "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(64);
  CUgraph graph;
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD8Async(m, 2, 64, b));
  OK(cuEventRecord(e, b));
  OK(cuStreamWaitEvent(a, e, 0));
  OK(cuMemsetD8Async(m, 3, 64, b));
  IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuMemFree_v2(m));
}

RULE(a_capture_cannot_depend_on_work_outside_of_it, "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUevent e = new_event(), never = new_event();
  OK(cuEventRecord(e, b));
  OK(cuEventSynchronize(e)); /* complete, but recorded: a run of the graph could not wait for it */
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuStreamWaitEvent(a, never, 0));
  SAME(status(a), ACTIVE);
  IS(cuStreamWaitEvent(a, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  end_invalidated(a);
  OK(cuEventRecord(e, a)); /* its own work of before is outside as well */
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  IS(cuStreamWaitEvent(a, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  end_invalidated(a);
  OK(cuEventDestroy_v2(e));
  OK(cuEventDestroy_v2(never));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

RULE(two_captures_cannot_be_merged, "") {
  use(0);
  CUstream a = capturing(GLOBAL), b = capturing(GLOBAL);
  CUevent e = new_event();
  OK(cuEventRecord(e, a));
  IS(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  SAME(status(b), INVALIDATED);
  end_invalidated(a);
  end_invalidated(b);
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

RULE(a_captured_event_is_not_for_the_host, "") {
  use(0);
  CUevent e, timed;
  CUresult (*const asks[])(CUevent) = {cuEventQuery, cuEventSynchronize};
  float ms;
  OK(cuEventCreate(&e, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&timed, CU_EVENT_DEFAULT));
  OK(cuEventRecord(timed, NULL));
  for (int i = 0; i < 3; i++) {
    CUstream s = capturing(RELAXED); /* in any mode */
    OK(cuEventRecord(e, s));
    if (i < 2)
      IS(asks[i](e), CUDA_ERROR_CAPTURED_EVENT);
    else
      IS(cuEventElapsedTime(&ms, timed, e), CUDA_ERROR_CAPTURED_EVENT);
    end_invalidated(s);
    OK(cuStreamDestroy_v2(s));
  }
  OK(cuEventDestroy_v2(e));
  OK(cuEventDestroy_v2(timed));
}

RULE(a_captured_event_stays_one_until_it_is_recorded_again, "") {
  use(0);
  CUstream s = capturing(GLOBAL), b = new_stream();
  CUevent e = new_event();
  OK(cuEventRecord(e, s));
  OK(cuGraphDestroy(end(s)));
  IS(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
  IS(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_CAPTURED_EVENT);
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  IS(cuStreamWaitEvent(s, e, 0), CUDA_ERROR_CAPTURED_EVENT);
  end_invalidated(s);
  OK(cuEventRecord(e, b));
  OK(cuEventSynchronize(e));
  OK(cuStreamWaitEvent(s, e, 0));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(b));
}

RULE(external_records_and_waits_are_nodes_of_a_capture, "") {
  use(0);
  CUstream s = new_stream();
  CUevent e = new_event();
  IS(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
  OK(cuEventRecord(e, s));
  OK(cuStreamSynchronize(s));
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  OK(cuStreamWaitEvent(s, e, CU_EVENT_WAIT_EXTERNAL));
  OK(cuEventRecordWithFlags(e, s, CU_EVENT_RECORD_EXTERNAL));
  CUgraph graph = end(s);
  CUgraphNode nodes[2];
  size_t count = 2;
  int first, second;
  OK(cuGraphGetNodes(graph, nodes, &count));
  OK(cuGraphNodeGetType(nodes[0], &first));
  OK(cuGraphNodeGetType(nodes[1], &second));
  SAME(first, 6);
  SAME(second, 7);
  OK(cuEventQuery(e)); /* it is no event of the capture */
  OK(cuGraphDestroy(graph));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(an_invalidated_capture_takes_nothing_more, "") {
  use(0);
  CUstream s = capturing(RELAXED), b = new_stream();
  CUevent before = new_event(), e = new_event();
  CUdeviceptr m = new_memory(64);
  OK(cuEventRecord(before, s));
  IS(cuStreamQuery(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  SAME(status(s), INVALIDATED);
  IS(cuMemsetD8Async(m, 1, 64, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuEventRecord(e, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuStreamWaitEvent(s, e, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuStreamWaitEvent(b, before, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamBeginCapture_v2(s, GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
  end_invalidated(s);
  OK(cuEventDestroy_v2(e));
  OK(cuEventDestroy_v2(before));
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(b));
  OK(cuMemFree_v2(m));
}

RULE(a_stream_may_be_destroyed_while_it_captures, "") {
  use(0);
  CUstream a = capturing(GLOBAL), b = new_stream();
  CUevent e = new_event();
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuStreamDestroy_v2(b));
  CUstream c = new_stream();
  OK(cuStreamWaitEvent(c, e, 0));
  SAME(status(c), ACTIVE);
  OK(cuStreamDestroy_v2(a)); /* where it began: that ends it */
  SAME(status(c), NONE);
  OK(cuStreamSynchronize(c));
  OK(cuStreamDestroy_v2(c));
  OK(cuEventDestroy_v2(e));
  SAME(reported("graphs", 0), 0);
}

RULE(a_context_takes_its_captures_along, "") {
  CUcontext context;
  use(0);
  OK(cuCtxCreate_v2(&context, 0, 0));
  capturing(GLOBAL);
  OK(cuCtxDestroy_v2(context));
  OK(cuMemFree_v2(new_memory(64))); /* there is no capture any more that would forbid it */
}

RULE(a_graph_that_is_left_is_reported, "", .leaks = "cuStreamEndCapture: 0x") {
  use(0);
  CUstream s = capturing(GLOBAL);
  end(s);
  OK(cuStreamDestroy_v2(s));
}

RULE(a_graph_that_was_made_and_is_left_is_reported, "", .leaks = "cuGraphCreate: 0x") {
  CUgraph graph;
  use(0);
  OK(cuGraphCreate(&graph, 0));
}

RULE(graphs_are_made_and_destroyed, "") {
  CUgraph graph;
  size_t count = 7;
  use(0);
  IS(cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuGraphCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphCreate(&graph, 0));
  SAME(node_count(graph), 0);
  IS(cuGraphGetNodes(NULL, NULL, &count), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphDestroy(graph));
  IS(cuGraphDestroy((CUgraph)&graph), CUDA_ERROR_INVALID_VALUE);
}
