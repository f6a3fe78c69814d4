/* Stream capture. */
#define GROUP "capture"
#include "capture.h"

#include <sys/mman.h>

static size_t node_count(CUgraph graph) {
  size_t count = 99;
  OK(cuGraphGetNodes(graph, NULL, &count));
  return count;
}

RULE(captured_work_is_not_done_and_becomes_a_graph, MANUAL,
     "Work in a capturing stream is not done; it becomes nodes of a graph.") {
  CUgraphNode nodes[5] = {NULL, NULL, NULL, (CUgraphNode)(void*)a, (CUgraphNode)(void*)a};
  size_t count = 5;
  int types[3] = {-1, -1, -1};
  memset(p, 1, 64);
  fill(m, 1, 64);
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  SAME(status(a), ACTIVE);
  OK(cuMemsetD8Async(m, 2, 64, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, 64, a));
  OK(cuMemsetD32Async(m, 3, 16, a));
  CUgraph graph = end(a);
  SAME(status(a), NONE);
  OK(cuGraphGetNodes(graph, nodes, &count));
  SAME(count, 3);
  CHECK(nodes[3] == NULL && nodes[4] == NULL);
  for (int i = 0; i < 3; i++) OK(cuGraphNodeGetType(nodes[i], &types[i]));
  SAME(types[0], CU_GRAPH_NODE_TYPE_MEMSET);
  SAME(types[1], CU_GRAPH_NODE_TYPE_MEMCPY);
  SAME(types[2], CU_GRAPH_NODE_TYPE_MEMSET);
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(p, 1, 64));
  CHECK(is_filled(m, 1, 64));
}

static void count_up(void* data) { ++*(atomic_int*)data; }

static void count_callback(CUstream stream, CUresult result, void* data) {
  (void)stream, (void)result;
  count_up(data);
}

RULE(a_captured_host_function_is_not_called, MANUAL, "A host function in a capture becomes a node and is not called.") {
  CUstream s = capturing(GLOBAL);
  static atomic_int calls;
  OK(cuLaunchHostFunc(s, count_up, &calls));
  CUgraph graph = end(s);
  SAME(node_count(graph), 1);
  OK(cuStreamSynchronize(s));
  SAME(calls, 0);
}

RULE(a_stream_callback_cannot_be_captured, MANUAL,
     "cuStreamAddCallback in a capture is CAPTURE_UNSUPPORTED, and invalidates it.") {
  static atomic_int calls;
  CUstream s = capturing(GLOBAL);
  IS(cuStreamAddCallback(s, count_callback, &calls, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(s);
  SAME(calls, 0);
}

RULE(a_prefetch_cannot_be_captured, READING,
     "cuMemPrefetchAsync in a capture is CAPTURE_UNSUPPORTED, and invalidates it.", .needs = MANAGED | CONCURRENT) {
  CUdeviceptr m = new_managed(64);
  CUstream s = capturing(GLOBAL);
  IS(cuMemPrefetchAsync(m, 64, 0, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(s);
}

RULE(work_before_and_after_a_capture_is_done, READING,
     "A capture may begin in a stream with pending work, which goes on.") {
  close_gate(a);
  OK(cuMemsetD8Async(m, 1, 64, a));
  OK(cuStreamBeginCapture_v2(a, RELAXED));
  OK(cuMemsetD8Async(m, 2, 64, a));
  end(a);
  STAYS_PENDING(cuStreamQuery(a));
  OK(cuMemsetD8Async(m + 32, 3, 32, a));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 1, 32) && is_filled(m + 32, 3, 32));
}

RULE(a_captured_copy_of_pageable_memory_does_not_wait, READING,
     "A copy from or to pageable memory in a capture becomes a node and returns at once, without reading the source.") {
  const size_t page = page_size();
  CUdeviceptr n = new_memory(3 * page);
  unsigned char *to = new_pages(page), *from = new_pages(3 * page);
  if (mprotect(from + page, page, PROT_NONE)) stop("no page can be protected");
  fill(m, 1, 64);
  close_gate(a);
  OK(cuStreamBeginCapture_v2(a, RELAXED));
  DOES_NOT_WAIT(cuMemcpyDtoHAsync_v2(to, m, 64, a));
  DOES_NOT_WAIT(cuMemcpyHtoDAsync_v2(n, from, 3 * page, a));
  CUgraph graph = end(a);
  SAME(node_count(graph), 2);
  open_gate();
  OK(cuStreamSynchronize(a));
  SAME(to[0], 0);
}

RULE(the_legacy_stream_cannot_be_captured, MANUAL, "A capture of the legacy stream is CAPTURE_UNSUPPORTED.") {
  IS(cuStreamBeginCapture_v2(NULL, GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  IS(cuStreamBeginCapture_v2(CU_STREAM_LEGACY, RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

RULE(capture_modes_are_checked, MANUAL, "cuStreamBeginCapture of an unknown mode is INVALID_VALUE.") {
  IS(cuStreamBeginCapture_v2(a, 3), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamBeginCapture_v2(a, -1), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_capture_is_not_begun_twice, SEEN,
     "cuStreamBeginCapture in a stream that captures is ILLEGAL_STATE, and leaves the capture active.") {
  OK(cuStreamBeginCapture(a));
  IS(cuStreamBeginCapture_v2(a, GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
  end_active(a);
}

RULE(a_graph_needs_a_place, READING, "cuStreamEndCapture without a place for the graph is INVALID_VALUE.",
     .driver = "end the capture") {
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  IS(cuStreamEndCapture(a, NULL), CUDA_ERROR_INVALID_VALUE);
  end_active(a);
}

RULE(a_capture_that_did_not_begin_is_not_ended, READING,
     "cuStreamEndCapture of a stream that does not capture is ILLEGAL_STATE.") {
  CUgraph graph;
  IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
}

RULE(the_per_thread_stream_can_be_captured, MANUAL, "CU_STREAM_PER_THREAD can be captured.") {
  OK(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, RELAXED));
  OK(cuMemsetD8Async(m, 2, 64, CU_STREAM_PER_THREAD));
  end_active(CU_STREAM_PER_THREAD);
  CUgraph graph = NULL;
  OK(cuStreamBeginCapture_v2_ptsz(NULL, GLOBAL));
  OK(cuMemsetD8Async_ptsz(m, 2, 64, NULL));
  SAME(status(CU_STREAM_PER_THREAD), ACTIVE);
  OK(cuStreamEndCapture_ptsz(NULL, &graph));
  SAME(node_count(graph), 1);
  OK(cuGraphDestroy(graph));
}

RULE(a_capture_has_an_id, MANUAL, "cuStreamGetCaptureInfo gives state and id; another capture has another id.") {
  int is = -1;
  uint64_t id = 0, other = 0;
  CUgraph graph = NULL;
  const CUgraphNode* nodes = NULL;
  size_t count = 9;
  CUdeviceptr m = new_memory(64);
  OK(cuStreamGetCaptureInfo_v2(a, &is, NULL, NULL, NULL, NULL));
  SAME(is, NONE);
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuStreamGetCaptureInfo_v2(a, &is, &id, NULL, NULL, &count));
  SAME(is, ACTIVE);
  SAME(count, 0);
  OK(cuMemsetD8Async(m, 2, 64, a));
  OK(cuMemsetD8Async(m, 2, 64, a));
  OK(cuStreamGetCaptureInfo_v2(a, &is, &other, &graph, &nodes, &count));
  CHECK(other == id);
  CHECK(graph != NULL);
  SAME(count, 1);
  CUgraphNode all[2] = {NULL};
  size_t room = 2;
  OK(cuGraphGetNodes(graph, all, &room));
  CHECK(nodes[0] == all[1]); /* what the next node comes after */
  CHECK(end(a) == graph);
  OK(cuGraphDestroy(graph));
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuStreamGetCaptureInfo_v2(a, &is, &other, NULL, NULL, NULL));
  CHECK(other != id);
  end_active(a);
}

RULE(older_and_newer_functions_tell_about_a_capture, MANUAL,
     "cuStreamGetCaptureInfo of CUDA 10 has state and id, that of 12.3 edges too, which need not be told.") {
  int is = -1;
  uint64_t id = 0;
  const CUgraphNode* nodes = NULL;
  const CUgraphEdgeData* edges = NULL;
  size_t count = 9;
  OK(cuStreamGetCaptureInfo(a, &is, &id));
  SAME(is, NONE);
  IS(cuStreamGetCaptureInfo(a, NULL, &id), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuMemsetD8Async(m, 2, 64, a));
  OK(cuStreamGetCaptureInfo(a, &is, &id));
  SAME(is, ACTIVE);
  OK(cuStreamGetCaptureInfo_v3(a, &is, NULL, NULL, &nodes, &edges, &count));
  SAME(count, 1);
  CHECK(edges == NULL || all_bytes((const unsigned char*)edges, 0, sizeof *edges));
  end_active(a);
}

RULE(edges_of_a_capture_are_told_with_the_nodes, READING,
     "cuStreamGetCaptureInfo_v3 of edges without nodes is INVALID_VALUE.", .alone = true) {
  int is;
  const CUgraphEdgeData* edges = NULL;
  CUstream s = capturing(GLOBAL);
  IS(cuStreamGetCaptureInfo_v3(s, &is, NULL, NULL, NULL, &edges, NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(
    an_invalidated_capture_takes_nothing_more, MANUAL,
    "Work, records and waits in an invalidated capture are INVALIDATED until it is ended, cuStreamSynchronize UNSUPPORTED.") {
  CUstream s = capturing(RELAXED);
  CUdeviceptr m = 0;
  REFUSED(cuStreamQuery(s));
  SAME(status(s), INVALIDATED);
  m = new_memory(64);
  IS(cuMemsetD8Async(m, 1, 64, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuEventRecord(e, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuStreamWaitEvent(s, e, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  IS(cuStreamBeginCapture_v2(s, GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
  end_invalidated(s);
  IS(cuStreamSynchronize(s), CUDA_SUCCESS);
}

RULE(an_event_of_an_invalidated_capture_is_refused, SEEN,
     "A wait of another stream for an event of an invalidated capture is INVALID_VALUE.") {
  CUstream s = capturing(RELAXED);
  OK(cuEventRecord(e, s));
  REFUSED(cuStreamQuery(s));
  IS(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_INVALID_VALUE);
  end_invalidated(s);
}

RULE(a_stream_may_be_destroyed_while_it_captures, READING,
     "cuStreamDestroy of the stream in which a capture began gives it up.", .alone = true) {
  CUstream a = capturing(GLOBAL);
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(c, e, 0));
  IS(cuStreamDestroy_v2(c), CUDA_SUCCESS); /* and the capture goes on */
  OK(cuStreamWaitEvent(b, e, 0));
  SAME(status(b), ACTIVE);
  IS(cuStreamDestroy_v2(a), CUDA_SUCCESS);
  SAME(status(b), NONE);
  IS(cuStreamSynchronize(b), CUDA_SUCCESS);
}

RULE(a_context_takes_its_captures_along, READING, "cuCtxDestroy gives the captures of the context up.", .alone = true) {
  CUcontext context;
  OK(cuCtxCreate_v2(&context, 0, 0));
  capturing(GLOBAL);
  OK(cuCtxDestroy_v2(context));
  IS(cuMemFree_v2(new_memory(64)), CUDA_SUCCESS); /* which a global capture would forbid */
}

RULE(graphs_are_made_and_destroyed, MANUAL,
     "cuGraphCreate makes an empty graph; flags, and no place for it, are INVALID_VALUE.") {
  CUgraph graph = NULL;
  IS(cuGraphCreate(&graph, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuGraphCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphCreate(&graph, 0));
  SAME(node_count(graph), 0);
  IS(cuGraphDestroy(graph), CUDA_SUCCESS);
}

RULE(a_destroyed_graph_is_refused, SEEN, "The second cuGraphDestroy, and nodes of no graph, are INVALID_VALUE.",
     .alone = true) {
  size_t count = 1;
  CUgraph graph = end(capturing(GLOBAL));
  OK(cuGraphDestroy(graph));
  IS(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
  IS(cuGraphGetNodes(NULL, NULL, &count), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_node_of_a_destroyed_graph_is_refused, READING,
     "cuGraphNodeGetType of a node of a destroyed graph is INVALID_VALUE.", .driver = "read the memory it was in") {
  CUgraphNode node = NULL;
  size_t count = 1;
  int type;
  CUstream s = capturing(GLOBAL);
  OK(cuMemsetD8Async(m, 1, 64, s));
  CUgraph graph = end(s);
  OK(cuGraphGetNodes(graph, &node, &count));
  OK(cuGraphDestroy(graph));
  IS(cuGraphNodeGetType(node, &type), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_graph_is_not_destroyed_during_its_capture, SEEN,
     "cuGraphDestroy of the graph that a stream captures into is ILLEGAL_STATE.", .alone = true) {
  int is;
  CUgraph graph = NULL;
  CUstream s = capturing(GLOBAL);
  OK(cuStreamGetCaptureInfo_v2(s, &is, NULL, &graph, NULL, NULL));
  IS(cuGraphDestroy(graph), CUDA_ERROR_ILLEGAL_STATE);
  end_active(s);
}
