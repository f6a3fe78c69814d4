/* Stream capture: begin, end and queries. captured.c has its effect on the work of streams,
 * unsafe.c the calls that it forbids.
 *
 * The manual says: a capture begins and ends in the same stream, not in the legacy one, and unless
 * it is relaxed in the same thread; an operation that is not permitted invalidates the captures
 * that it conflicts with; an invalidated capture is ended all the same, which answers an error and
 * no graph. So is, as seen on drivers, one that another thread must not end. A comment "Reading:" in these three files
 * marks a choice that the manual leaves open. */
#include "sim.h"

#include <stdlib.h>

struct capture *capture_find(uint64_t id) {
  struct capture *c = sim.captures;
  while (c && c->id != id) c = c->next;
  return c;
}

void capture_invalidate(struct capture *c) { c->invalid = true; }

/* Every stream of the capture runs work queued from now on, after the work that it queued before
 * the capture. */
static void end(struct capture *capture) {
  for (struct context *c = sim.contexts; c; c = c->next)
    for (struct stream *s = c->streams; s; s = s->next)
      if (s->capture == capture) {
        s->capture = NULL;
        s->ends.count = 0;
      }
  struct capture **c = &sim.captures;
  while (*c != capture) c = &(*c)->next;
  *c = capture->next;
  if (capture->graph) object_unref(&capture->graph->object);
  free(capture->edges);
  free(capture);
}

/* Reading: a capture whose first stream is destroyed is given up; another stream's work
 * stays in it, to be joined or not. */
void capture_leave(struct stream *s) {
  if (!s->capture) return;
  if (s->capture->origin == s) {
    end(s->capture);
  } else {
    s->capture = NULL;
    s->ends.count = 0;
  }
}

bool capture_of_blocking(const struct context *c) {
  for (const struct stream *s = c->streams; s; s = s->next)
    if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING)) return true;
  return false;
}

/* The legacy stream would depend on a capturing one: it is unusable until that ends. */
CUresult capture_implicit(const struct context *c) {
  if (!capture_of_blocking(c)) return CUDA_SUCCESS;
  for (const struct stream *s = c->streams; s; s = s->next)
    if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING)) capture_invalidate(s->capture);
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

static uint64_t thread_id(void) {
  static uint64_t ids;
  struct thread *t = self();
  if (!t->id) t->id = ++ids;
  return t->id;
}

CUresult capture_begin(CUstream stream, int mode) {
  static uint64_t ids;
  struct stream *s;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = stream_find(stream, &s);
  if (r) return r;
  if (s->role == LEGACY) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
  struct capture *c = fresh(sizeof *c);
  r = graph_new(c, &c->graph);
  if (r) {
    free(c);
    return r;
  }
  c->id = ++ids;
  c->thread = thread_id();
  c->mode = mode;
  c->origin = s;
  c->next = sim.captures;
  sim.captures = c;
  s->capture = c;
  s->ends.count = 0;
  return CUDA_SUCCESS;
}

/* As it was in 10.0, which had no modes. Reading: the strictest, which became the default. */
CUresult capture_begin_global(CUstream stream) { return capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL); }

static bool ended_by_other_thread(const struct capture *c) {
  return c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != self()->id;
}

/* Joined are all nodes that the first stream's next one would come after. Reading: a
 * stream that was forked and given no work need not be joined. */
CUresult capture_end(CUstream stream, CUgraph *graph) {
  struct stream *s;
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = stream_find(stream, &s);
  if (r) return r;
  *graph = NULL;
  struct capture *c = s->capture;
  if (!c) return CUDA_ERROR_ILLEGAL_STATE;
  if (c->origin != s) {
    capture_invalidate(c);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (ended_by_other_thread(c)) {
    r = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  } else if (c->invalid) {
    r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!graph_joined(c->graph, &s->ends)) {
    r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  } else {
    *graph = (CUgraph)c->graph->object.handle;
    c->graph->object.call = self()->call;
    c->graph->capture = NULL;
    ledger_object(&c->graph->object);
    c->graph = NULL;
  }
  end(c);
  return r;
}

static int status_of(const struct stream *s) {
  if (!s->capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* To ask about the legacy stream is an error while it is unusable, and invalidates nothing. */
static CUresult ask(CUstream stream, int *status, struct stream **out) {
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = stream_find(stream, out);
  if (r) return r;
  if ((*out)->role == LEGACY && capture_of_blocking((*out)->context)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = status_of(*out);
  return CUDA_SUCCESS;
}

CUresult capture_status(CUstream stream, int *status) {
  struct stream *s;
  return ask(stream, status, &s);
}

CUresult capture_info(CUstream stream, int *status, uint64_t *id) {
  return capture_info_v2(stream, status, id, NULL, NULL, NULL);
}

CUresult capture_info_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                         size_t *count) {
  struct stream *s;
  CUresult r = ask(stream, status, &s);
  if (r || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return r;
  if (id) *id = s->capture->id;
  if (graph) *graph = (CUgraph)s->capture->graph->object.handle;
  if (nodes) *nodes = s->ends.at;
  if (count) *count = (size_t)s->ends.count;
  return CUDA_SUCCESS;
}

/* Edges of a capture carry no data. */
CUresult capture_info_v3(CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                         const CUgraphEdgeData **edges, size_t *count) {
  struct stream *s;
  if (edges && !nodes) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = capture_info_v2(stream, status, id, graph, nodes, count);
  if (r || !edges || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return r;
  r = stream_find(stream, &s);
  if (r) return r;
  free(s->capture->edges);
  s->capture->edges = fresh((size_t)(s->ends.count + 1) * sizeof **edges);
  *edges = s->capture->edges;
  return CUDA_SUCCESS;
}

CUresult capture_exchange_mode(int *mode) {
  struct thread *t = self();
  if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  int before = t->capture_mode;
  t->capture_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
