/* Stream capture. */
#define GROUP "capture"
#include "capture.h"

static size_t node_count(CUgraph graph) {
  size_t count = 99;
  OK(cuGraphGetNodes(graph, NULL, &count));
  return count;
}

RULE(captured_work_is_not_done_and_becomes_a_graph, MANUAL,
     "Work in a capturing stream is not done; it becomes nodes of a graph.") {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char* p = new_pinned(64);
  CUgraphNode nodes[3] = {NULL};
  size_t count = 3;
  int types[3] = {-1, -1, -1};
  memset(p, 1, 64);
  fill(m, 1, 64);
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  SAME(status(s), ACTIVE);
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuMemcpyDtoHAsync_v2(p, m, 64, s));
  OK(cuMemsetD32Async(m, 3, 16, s));
  CUgraph graph = end(s);
  SAME(status(s), NONE);
  OK(cuGraphGetNodes(graph, nodes, &count));
  SAME(count, 3);
  for (int i = 0; i < 3; i++) OK(cuGraphNodeGetType(nodes[i], &types[i]));
  SAME(types[0], CU_GRAPH_NODE_TYPE_MEMSET);
  SAME(types[1], CU_GRAPH_NODE_TYPE_MEMCPY);
  SAME(types[2], CU_GRAPH_NODE_TYPE_MEMSET);
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes(p, 1, 64));
  CHECK(is_filled(m, 1, 64));
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
  OK(cuMemFreeHost(p));
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
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_stream_callback_cannot_be_captured, MANUAL,
     "cuStreamAddCallback in a capture is CAPTURE_UNSUPPORTED, and invalidates it.") {
  static atomic_int calls;
  CUstream s = capturing(GLOBAL);
  IS(cuStreamAddCallback(s, count_callback, &calls, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(s);
  SAME(calls, 0);
  OK(cuStreamDestroy_v2(s));
}

RULE(a_prefetch_cannot_be_captured, READING,
     "cuMemPrefetchAsync in a capture is CAPTURE_UNSUPPORTED, and invalidates it.", .needs = MANAGED | CONCURRENT) {
  CUdeviceptr m = new_managed(64);
  CUstream s = capturing(GLOBAL);
  IS(cuMemPrefetchAsync(m, 64, 0, s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(s);
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

RULE(work_before_and_after_a_capture_is_done, READING,
     "A capture may begin in a stream with pending work, which goes on.") {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  close_gate(s);
  OK(cuMemsetD8Async(m, 1, 64, s));
  OK(cuStreamBeginCapture_v2(s, RELAXED));
  OK(cuMemsetD8Async(m, 2, 64, s));
  CUgraph graph = end(s);
  STAYS_PENDING(cuStreamQuery(s));
  OK(cuMemsetD8Async(m + 32, 3, 32, s));
  open_gate();
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 1, 32) && is_filled(m + 32, 3, 32));
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

RULE(a_captured_copy_of_pageable_memory_does_not_wait, READING,
     "A copy to pageable memory in a capture becomes a node and returns at once.") {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char* to = new_pages(4096);
  fill(m, 1, 64);
  close_gate(s);
  OK(cuStreamBeginCapture_v2(s, RELAXED));
  DOES_NOT_WAIT(cuMemcpyDtoHAsync_v2(to, m, 64, s));
  CUgraph graph = end(s);
  SAME(node_count(graph), 1);
  open_gate();
  OK(cuStreamSynchronize(s));
  SAME(to[0], 0);
  OK(cuGraphDestroy(graph));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

RULE(the_legacy_stream_cannot_be_captured, MANUAL, "A capture of the legacy stream is CAPTURE_UNSUPPORTED.") {
  IS(cuStreamBeginCapture_v2(NULL, GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  IS(cuStreamBeginCapture_v2(CU_STREAM_LEGACY, RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

RULE(capture_modes_are_checked, MANUAL, "cuStreamBeginCapture of an unknown mode is INVALID_VALUE.") {
  CUstream s = new_stream();
  IS(cuStreamBeginCapture_v2(s, 3), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamBeginCapture_v2(s, -1), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamDestroy_v2(s));
}

RULE(a_capture_is_not_begun_twice, READING,
     "cuStreamBeginCapture in a stream that captures is ILLEGAL_STATE, and does no harm.") {
  CUstream s = capturing(GLOBAL);
  IS(cuStreamBeginCapture_v2(s, GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
  end_active(s);
  OK(cuStreamDestroy_v2(s));
}

RULE(a_capture_that_did_not_begin_is_not_ended, READING,
     "cuStreamEndCapture of a stream that does not capture is ILLEGAL_STATE.") {
  CUstream s = new_stream();
  CUgraph graph;
  IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_ILLEGAL_STATE);
  OK(cuStreamDestroy_v2(s));
}

RULE(the_per_thread_stream_can_be_captured, MANUAL, "CU_STREAM_PER_THREAD can be captured.") {
  CUdeviceptr m = new_memory(64);
  OK(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, RELAXED));
  OK(cuMemsetD8Async(m, 2, 64, CU_STREAM_PER_THREAD));
  end_active(CU_STREAM_PER_THREAD);
  OK(cuMemFree_v2(m));
}

RULE(a_capture_has_an_id, MANUAL, "cuStreamGetCaptureInfo gives state and id; another capture has another id.") {
  CUstream s = new_stream();
  int is = -1;
  uint64_t id = 0, other = 0;
  CUgraph graph = NULL;
  const CUgraphNode* nodes = NULL;
  size_t count = 9;
  CUdeviceptr m = new_memory(64);
  OK(cuStreamGetCaptureInfo_v2(s, &is, NULL, NULL, NULL, NULL));
  SAME(is, NONE);
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  OK(cuStreamGetCaptureInfo_v2(s, &is, &id, NULL, NULL, &count));
  SAME(is, ACTIVE);
  SAME(count, 0);
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuStreamGetCaptureInfo_v2(s, &is, &other, &graph, &nodes, &count));
  CHECK(other == id);
  CHECK(graph != NULL);
  SAME(count, 1);
  CHECK(end(s) == graph);
  OK(cuGraphDestroy(graph));
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  OK(cuStreamGetCaptureInfo_v2(s, &is, &other, NULL, NULL, NULL));
  CHECK(other != id);
  end_active(s);
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

RULE(an_invalidated_capture_takes_nothing_more, MANUAL,
     "Calls in an invalidated capture are INVALIDATED until it is ended.") {
  CUstream s = capturing(RELAXED);
  CUevent e = new_event();
  CUdeviceptr m = 0;
  REFUSED(cuStreamQuery(s));
  SAME(status(s), INVALIDATED);
  m = new_memory(64);
  IS(cuMemsetD8Async(m, 1, 64, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuEventRecord(e, s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuStreamWaitEvent(s, e, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  end_invalidated(s);
  IS(cuStreamSynchronize(s), CUDA_SUCCESS);
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

RULE(an_event_of_an_invalidated_capture_is_refused, SEEN,
     "A wait of another stream for an event of an invalidated capture is INVALID_VALUE.") {
  CUstream s = capturing(RELAXED), b = new_stream();
  CUevent e = new_event();
  OK(cuEventRecord(e, s));
  REFUSED(cuStreamQuery(s));
  IS(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_INVALID_VALUE);
  end_invalidated(s);
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(b));
}

RULE(a_stream_may_be_destroyed_while_it_captures, READING,
     "cuStreamDestroy of the stream in which a capture began gives it up.", .alone = true) {
  CUstream a = capturing(GLOBAL), b = new_stream();
  CUevent e = new_event();
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  SAME(status(b), ACTIVE);
  IS(cuStreamDestroy_v2(a), CUDA_SUCCESS);
  SAME(status(b), NONE);
  IS(cuStreamSynchronize(b), CUDA_SUCCESS);
}
