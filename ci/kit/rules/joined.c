/* Streams and events that join a capture. */
#define GROUP "capture"
#include "capture.h"

static uint64_t id_of(CUstream s) {
  int is;
  uint64_t id = 0;
  OK(cuStreamGetCaptureInfo_v2(s, &is, &id, NULL, NULL, NULL));
  return id;
}

static size_t dependencies_of(CUstream s) {
  int is;
  size_t count = 99;
  OK(cuStreamGetCaptureInfo_v2(s, &is, NULL, NULL, NULL, &count));
  return count;
}

static void fork_and_join(bool work, bool joined, CUresult want) {
  CUstream a = new_stream(), b = new_stream(), c = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(64);
  CUgraph graph = NULL;
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  SAME(status(b), ACTIVE);
  CHECK(id_of(a) == id_of(b));
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

RULE(
    a_joined_fork_is_part_of_the_graph, MANUAL,
    "A stream that waits for an event of a capture joins it, and is joined by an event to the stream of its beginning.") {
  fork_and_join(true, true, CUDA_SUCCESS);
}
RULE(a_fork_with_work_must_be_joined, MANUAL,
     "A capture with work of another stream that was not joined ends with UNJOINED.") {
  fork_and_join(true, false, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}
RULE(a_fork_without_work_need_not_be_joined, READING,
     "A stream that joined a capture and has no work in it need not be joined.") {
  fork_and_join(false, false, CUDA_SUCCESS);
}

RULE(work_after_a_join_depends_on_both_streams, MANUAL,
     "After a wait in a capture, the next work of the stream comes after that of both streams.") {
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD8Async(m, 2, 32, b));
  OK(cuMemsetD8Async(m + 32, 3, 32, a));
  SAME(dependencies_of(a), 1);
  OK(cuEventRecord(e, b));
  OK(cuStreamWaitEvent(a, e, 0));
  SAME(dependencies_of(a), 2);
  end_active(a);
}

RULE(work_queued_in_a_fork_after_its_join_is_not_joined, MANUAL,
     "Work of a fork that comes after its join is UNJOINED.") {
  CUgraph graph;
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD8Async(m, 2, 64, b));
  OK(cuEventRecord(e, b));
  OK(cuStreamWaitEvent(a, e, 0));
  OK(cuMemsetD8Async(m, 3, 64, b));
  IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

RULE(a_capture_is_ended_where_it_began, MANUAL,
     "cuStreamEndCapture of a stream that joined is UNMATCHED, and invalidates it.") {
  CUstream a = capturing(GLOBAL);
  CUgraph graph = (CUgraph)(void*)a;
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  IS(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  CHECK(graph == NULL);
  end_invalidated(a);
  SAME(status(b), NONE);
}

RULE(a_stream_of_another_device_joins_a_capture, MANUAL, "A stream of another device may join a capture.",
     .needs = TWO) {
  use(1);
  CUstream far = new_stream();
  use(0);
  CUstream s = capturing(GLOBAL);
  CUevent e = new_event();
  OK(cuEventRecord(e, s));
  IS(cuStreamWaitEvent(far, e, 0), CUDA_SUCCESS);
  SAME(status(far), ACTIVE);
  OK(cuGraphDestroy(end(s)));
}

RULE(a_capture_cannot_depend_on_work_outside_of_it, MANUAL,
     "A wait in a capture for an event that was recorded outside of it is ISOLATION, complete or not.") {
  OK(cuEventRecord(e, b));
  OK(cuEventSynchronize(e));
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  IS(cuStreamWaitEvent(a, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  end_invalidated(a);
  OK(cuEventRecord(e, a)); /* its own work of before is outside as well */
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  IS(cuStreamWaitEvent(a, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  end_invalidated(a);
}

RULE(a_capture_may_wait_for_an_event_never_recorded, READING,
     "A wait in a capture for an event never recorded does nothing.") {
  CUstream s = capturing(GLOBAL);
  IS(cuStreamWaitEvent(s, e, 0), CUDA_SUCCESS);
  end_active(s);
}

RULE(two_captures_cannot_be_merged, MANUAL,
     "A wait in one capture for an event of another is MERGE, and invalidates both.") {
  CUstream a = capturing(GLOBAL), b = capturing(GLOBAL);
  OK(cuEventRecord(e, a));
  IS(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  end_invalidated(a);
  end_invalidated(b);
}

RULE(a_captured_event_is_not_queried, MANUAL,
     "cuEventQuery of an event of a capture is CAPTURED_EVENT, and invalidates it.") {
  CUstream s = capturing(RELAXED);
  OK(cuEventRecord(e, s));
  IS(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
  end_invalidated(s);
}

RULE(a_captured_event_is_not_waited_for, MANUAL,
     "cuEventSynchronize of an event of a capture is CAPTURED_EVENT, and invalidates it.") {
  CUstream s = capturing(RELAXED);
  OK(cuEventRecord(e, s));
  IS(cuEventSynchronize(e), CUDA_ERROR_CAPTURED_EVENT);
  end_invalidated(s);
}

RULE(a_captured_event_has_no_time, MANUAL,
     "cuEventElapsedTime of an event of a capture is CAPTURED_EVENT, and leaves the capture active.") {
  CUevent e, timed;
  float ms;
  OK(cuEventCreate(&e, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&timed, CU_EVENT_DEFAULT));
  OK(cuEventRecord(timed, NULL));
  OK(cuEventSynchronize(timed));
  CUstream s = capturing(RELAXED);
  OK(cuEventRecord(e, s));
  IS(cuEventElapsedTime(&ms, timed, e), CUDA_ERROR_CAPTURED_EVENT);
  end_active(s);
  OK(cuEventDestroy_v2(e));
  OK(cuEventDestroy_v2(timed));
}

RULE(an_event_of_an_ended_capture_is_refused, SEEN,
     "Query of, and a wait of a stream for, an event of a capture that has ended are INVALID_VALUE.") {
  CUstream s = capturing(GLOBAL);
  OK(cuEventRecord(e, s));
  OK(cuGraphDestroy(end(s)));
  IS(cuEventQuery(e), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamWaitEvent(b, e, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuEventRecord(e, b)); /* and then it is an event like any other */
  IS(cuEventSynchronize(e), CUDA_SUCCESS);
}

RULE(an_event_of_an_ended_capture_is_not_waited_for_in_another, SEEN,
     "A wait in a capture for an event of a capture that has ended is INVALID_VALUE, and invalidates the first.") {
  CUstream s = capturing(GLOBAL);
  OK(cuEventRecord(e, s));
  OK(cuGraphDestroy(end(s)));
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  IS(cuStreamWaitEvent(s, e, 0), CUDA_ERROR_INVALID_VALUE);
  end_invalidated(s);
}

RULE(external_records_and_waits_are_nodes, MANUAL,
     "Records and waits with the flag EXTERNAL are nodes of the graph, and the event is no event of the capture.") {
  CUgraphNode nodes[2] = {NULL};
  size_t count = 2;
  int first = -1, second = -1;
  OK(cuEventRecord(e, a));
  OK(cuStreamSynchronize(a));
  OK(cuStreamBeginCapture_v2(a, GLOBAL));
  OK(cuStreamWaitEvent(a, e, CU_EVENT_WAIT_EXTERNAL));
  OK(cuEventRecordWithFlags(e, a, CU_EVENT_RECORD_EXTERNAL));
  CUgraph graph = end(a);
  OK(cuGraphGetNodes(graph, nodes, &count));
  SAME(count, 2);
  OK(cuGraphNodeGetType(nodes[0], &first));
  OK(cuGraphNodeGetType(nodes[1], &second));
  SAME(first, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  SAME(second, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  IS(cuEventQuery(e), CUDA_SUCCESS);
}
