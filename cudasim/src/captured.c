/* Work that a capture takes: it becomes nodes of a graph, and is done when that is launched.
 *
 * The manual says: a stream that waits for an event of a capture joins it; two captures
 * cannot be merged; a capture cannot depend on work outside of it, nor work outside on a
 * capture; and callbacks cannot be captured. */
#include "sim.h"

static CUresult invalidate(struct capture *c, CUresult result) {
  capture_invalidate(c);
  return result;
}

static CUresult add(struct stream *s, int type, const struct work *work) {
  CUgraphNode node;
  CUresult r = graph_add(s->capture->graph, type, work, s, &node);
  if (!r) nodes_set(&s->ends, &(struct nodes){.count = 1, .at = &node});
  return r;
}

/* 0: an operation that cannot be captured. Reading: prefetches, which have no type of node. */
static int type_of(const struct op *op) {
  switch (op->kind) {
    case OP_COPY: return CU_GRAPH_NODE_TYPE_MEMCPY;
    case OP_SET: return CU_GRAPH_NODE_TYPE_MEMSET;
    case OP_HOST: return op->host ? CU_GRAPH_NODE_TYPE_HOST : 0;
    default: return 0;
  }
}

static CUresult add_event(struct stream *s, int type, const struct event *e) {
  return add(s, type, &(struct work){.call = self()->call, .event = (CUevent)e->object.handle});
}

static uintptr_t address_of(const void *memory, const struct block *b) {
  return (uintptr_t)memory - (uintptr_t)(b ? b->shadow : 0);
}

static CUresult add_op(struct stream *s, const struct op *op) {
  const struct work work = {
      .call = op->call,
      .to = address_of(op->to, op->to_block),
      .from = address_of(op->from, op->from_block),
      .size = op->size,
      .peer = op->peer,
      .value = op->value,
      .width = op->width,
      .host = op->host,
      .data = op->data,
  };
  return add(s, type_of(op), &work);
}

/* Also refuses work for the legacy stream while that is forbidden. */
bool capture_takes(struct stream *s, const struct op *op, CUresult *result) {
  *result = CUDA_SUCCESS;
  if (s->role == LEGACY && sim.captures) {
    *result = capture_implicit(s->context);
    return *result;
  }
  if (!s->capture) return false;
  if (s->capture->invalid)
    *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!type_of(op))
    *result = invalidate(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  else
    *result = add_op(s, op);
  return true;
}

void capture_forget(struct event *e) { e->capture = 0; }

/* The event stands for the work that the stream has captured so far; nothing is recorded. */
bool capture_takes_record(struct stream *s, struct event *e, CUresult *result) {
  if (!s->capture) return false;
  *result = s->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  if (*result) return true;
  e->capture = s->capture->id;
  nodes_set(&e->nodes, &s->ends);
  return true;
}

/* CU_EVENT_RECORD_EXTERNAL: a node that records the event when the graph is run. */
CUresult capture_record_external(CUevent event, CUstream stream) {
  struct stream *s;
  CUresult r = stream_find_current(stream, &s);
  if (r) return r;
  const struct event *e = object_find(event, EVENT);
  if (!e || e->context != s->context) return CUDA_ERROR_INVALID_HANDLE;
  if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
  return s->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : add_event(s, CU_GRAPH_NODE_TYPE_EVENT_RECORD, e);
}

/* Reading: an event that was never recorded stands for nothing, in a capture too. Drivers were seen to
 * refuse one of a capture that has ended. */
static CUresult wait_inside(struct stream *s, const struct event *e) {
  if (!e->capture && !e->record.stream && !ipc_event_latest(e)) return CUDA_SUCCESS;
  if (!e->capture) return invalidate(s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  struct capture *other = capture_find(e->capture);
  if (!other) return invalidate(s->capture, CUDA_ERROR_INVALID_VALUE);
  if (other != s->capture) {
    capture_invalidate(other);
    return invalidate(s->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  nodes_add(&s->ends, &e->nodes);
  return CUDA_SUCCESS;
}

/* A stream that captures nothing joins the capture of the event. */
static CUresult join(struct stream *s, const struct event *e) {
  struct capture *c = capture_find(e->capture);
  if (!c || c->invalid) return CUDA_ERROR_INVALID_VALUE; /* as drivers were seen to answer */
  if (s->role == LEGACY) return invalidate(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  s->capture = c;
  nodes_set(&s->ends, &e->nodes);
  return CUDA_SUCCESS;
}

bool capture_takes_wait(struct stream *s, struct event *e, unsigned flags, CUresult *result) {
  const bool external = flags & CU_EVENT_WAIT_EXTERNAL;
  if (!s->capture && !e->capture && !external) return false;
  if (s->capture && s->capture->invalid)
    *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (external)
    *result = s->capture ? add_event(s, CU_GRAPH_NODE_TYPE_WAIT_EVENT, e) : CUDA_ERROR_ILLEGAL_STATE;
  else
    *result = s->capture ? wait_inside(s, e) : join(s, e);
  return true;
}
