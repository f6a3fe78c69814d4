/* What the rules of stream capture share. */
#pragma once

#include "rules.h"

enum {
  GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL,
  LOCAL = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
  RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED,
  NONE = CU_STREAM_CAPTURE_STATUS_NONE,
  ACTIVE = CU_STREAM_CAPTURE_STATUS_ACTIVE,
  INVALIDATED = CU_STREAM_CAPTURE_STATUS_INVALIDATED,
};

static inline int status(CUstream s) {
  int status = -1;
  OK(cuStreamIsCapturing(s, &status));
  return status;
}

static inline CUstream capturing(int mode) {
  CUstream s = new_stream();
  OK(cuStreamBeginCapture_v2(s, mode));
  return s;
}

static inline CUgraph end(CUstream s) {
  CUgraph graph = NULL;
  OK(cuStreamEndCapture(s, &graph));
  if (graph == NULL) differs("a capture that ended well has no graph");
  made(GRAPH, graph);
  return graph;
}

/* Ends a capture that goes on. */
static inline void end_active(CUstream s) {
  SAME(status(s), ACTIVE);
  OK(cuGraphDestroy(end(s)));
}

/* Ends a capture that must be invalidated, which frees the stream of it. */
static inline void end_invalidated(CUstream s) {
  CUgraph graph = (CUgraph)(void*)s;
  SAME(status(s), INVALIDATED);
  IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(graph == NULL);
  SAME(status(s), NONE);
}

static inline int mode_of_thread(int mode) {
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  return mode;
}
