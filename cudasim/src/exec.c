/* Executable graphs. Each stream of the capture has a lane here, a stream of the simulator's own that does
 * the nodes that were captured in it; lanes wait for each other where a node depends on one of another
 * lane, and for nothing else. Nodes of one lane depend on each other in its order. So a launch is queued
 * work like all other: each node is ordered, checked and run as an operation of its lane.
 *
 * The manual says: a launch comes after all earlier work of its stream and after all earlier launches of the
 * executable graph in any stream; an executable graph that is destroyed while it is in flight
 * completes. */
#include "sim.h"

#include <stdlib.h>

struct exec {
  struct object object;
  int count, lane_count, room;
  struct node **nodes; /* each after all that it depends on */
  struct stream **lanes;
  struct point last; /* the end of the latest launch, ... */
  struct mark *mark; /* ... and what it covers */
};

void exec_free(struct exec *e) {
  for (int i = 0; i < e->lane_count; i++) {
    stream_close(e->lanes[i]);
    object_unref(&e->lanes[i]->object);
  }
  for (int i = 0; i < e->count; i++) object_unref(&e->nodes[i]->object);
  point_set(&e->last, NULL, 0);
  mark_drop(e->mark);
  free(e->nodes);
  free(e->lanes);
  free(e);
}

/* ---- instantiating ---- */

static struct stream *lane_of(const struct exec *e, const struct node *n) {
  for (int i = 0; i < e->lane_count; i++)
    if (e->lanes[i]->captured == n->label) return e->lanes[i];
  return NULL;
}

static CUresult add_lane(struct exec *e, const struct node *n) {
  struct stream *s;
  if (lane_of(e, n)) return CUDA_SUCCESS;
  struct context *c = object_find(n->context, CONTEXT);
  CUresult r = c ? stream_new(c, LANE, CU_STREAM_NON_BLOCKING, &s) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (r) return r;
  s->object.refs++;
  s->captured = label_share(n->label);
  e->lanes = grow(e->lanes, e->lane_count, &e->room, sizeof *e->lanes);
  e->lanes[e->lane_count++] = s;
  return CUDA_SUCCESS;
}

static CUresult add_nodes(struct exec *e, const struct graph *g) {
  CUresult r = CUDA_SUCCESS;
  e->nodes = fresh((size_t)(g->count + 1) * sizeof *e->nodes);
  for (int i = 0; i < g->count && !r; i++) {
    e->nodes[e->count++] = g->at[i];
    g->at[i]->object.refs++;
    r = add_lane(e, g->at[i]);
  }
  return r;
}

/* Also while a capture adds to the graph, of which it takes what there is. */
static CUresult instantiate(CUgraphExec *exec, CUgraph graph) {
  const struct graph *g = object_find(graph, GRAPH);
  if (!exec || !g) return CUDA_ERROR_INVALID_VALUE;
  struct exec *e = fresh(sizeof *e);
  CUresult r = object_add(&e->object, EXEC);
  if (r) {
    free(e);
    return r;
  }
  r = add_nodes(e, g);
  if (r) {
    object_unref(&e->object);
    return r;
  }
  ledger_object(&e->object);
  *exec = (CUgraphExec)e->object.handle;
  return CUDA_SUCCESS;
}

/* There is no memory of the graph to free at a launch, and no node has a priority. */
static CUresult check_flags(uint64_t flags) {
  const uint64_t ignored =
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  if (flags & ~(ignored | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)) return CUDA_ERROR_INVALID_VALUE;
  return flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult exec_instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  CUresult r = check_flags(flags);
  return r ? r : instantiate(exec, graph);
}

/* As before 12.0. No node is ever to blame. */
CUresult exec_instantiate_log(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size) {
  if (node) *node = NULL;
  if (log && size) *log = 0;
  return instantiate(exec, graph);
}

CUresult exec_instantiate_params(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const bool upload = params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  CUresult r = check_flags(params->flags & ~(uint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  if (!r) r = instantiate(exec, graph);
  if (!r && upload) {
    r = exec_upload(*exec, params->hUploadStream);
    if (r) exec_destroy(*exec);
  }
  params->hErrNode_out = NULL;
  params->result_out = r ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return r;
}

/* ---- launching ---- */

/* Before anything is queued, so that a launch is queued as a whole: nothing can fail then but the record of
 * an event that processes share. */
static CUresult start(const struct exec *e, struct stream *launched_in) {
  CUresult r = stream_start(launched_in);
  for (int i = 0; i < e->lane_count && !r; i++) {
    struct stream *s = e->lanes[i];
    r = s->object.dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : s->context->fault;
    if (!r) r = stream_start(s);
  }
  for (int i = 0; i < e->count && !r; i++)
    if (e->nodes[i]->type == CU_GRAPH_NODE_TYPE_HOST) r = functions_start(lane_of(e, e->nodes[i])->context);
  return r;
}

/* A real device would fault, or use what the addresses mean by now. */
static CUresult lost(const struct node *n, struct stream *lane) {
  const struct op op = {.stream = lane, .caller = n->object.maker};
  violation_of(&op, "%s, captured in %s, uses memory at 0x%zx that was freed before %s, or cannot be reached any more",
               n->work.call, label_name(n->label), (size_t)n->work.to, self()->call);
  return lane->context->fault = CUDA_ERROR_ILLEGAL_ADDRESS;
}

static bool of_event(const struct node *n) {
  return n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || n->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
}

/* A node of an event has an operation that does nothing, and comes after the record or the wait. */
static CUresult make(struct node *n, struct stream *lane) {
  const struct work *w = &n->work;
  CUresult r = CUDA_SUCCESS;
  n->op = NULL;
  if (n->type == CU_GRAPH_NODE_TYPE_MEMCPY)
    r = copy_op(w, lane, &n->op);
  else if (n->type == CU_GRAPH_NODE_TYPE_MEMSET)
    r = set_op(w, lane, &n->op);
  else if (of_event(n) && !object_find(w->event, EVENT))
    return CUDA_ERROR_INVALID_HANDLE;
  else
    n->op = op_new(n->type == CU_GRAPH_NODE_TYPE_HOST ? OP_HOST : OP_WAIT);
  if (r) return lost(n, lane);
  n->op->call = w->call;
  n->op->caller = n->object.maker;
  n->op->host = w->host;
  n->op->data = w->data;
  return CUDA_SUCCESS;
}

static CUresult make_all(const struct exec *e) {
  for (int i = 0; i < e->count; i++) {
    CUresult r = make(e->nodes[i], lane_of(e, e->nodes[i]));
    if (!r) continue;
    while (i-- > 0) op_free(e->nodes[i]->op);
    return r;
  }
  return CUDA_SUCCESS;
}

/* A dependency in the same lane is waited for anyway. */
static void depend(struct op *op, const struct node *n, const struct stream *lane, struct op *begin) {
  if (!n->after.count) order_after(op, begin);
  for (int i = 0; i < n->after.count; i++) {
    const struct node *before = object_find_dying(n->after.at[i], NODE);
    if (before->op->stream != lane) order_after(op, before->op);
  }
}

static CUresult use_event(const struct node *n, struct stream *lane) {
  struct event *e = object_find(n->work.event, EVENT);
  return n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? event_record_in(e, lane) : stream_await(lane, e);
}

static CUresult push(struct node *n, struct stream *lane, struct op *begin) {
  CUresult r = CUDA_SUCCESS;
  struct op *first = of_event(n) ? op_new(OP_WAIT) : n->op;
  depend(first, n, lane, begin);
  if (of_event(n)) {
    op_push(lane, first);
    r = use_event(n, lane);
  }
  op_push(lane, n->op);
  return r;
}

static CUresult push_begin(const struct exec *e, struct stream *s) {
  struct op *op = op_new(OP_WAIT);
  points_add(&op->after, e->last);
  marks_add(&op->awaited, mark_share(e->mark));
  return op_push(s, op);
}

static void push_end(struct exec *e, struct stream *s) {
  struct op *op = op_new(OP_WAIT);
  for (int i = 0; i < e->lane_count; i++) {
    points_add_all(&op->after, e->lanes[i]);
    marks_of_stream(&op->awaited, e->lanes[i]);
  }
  op_push(s, op);
  point_set(&e->last, s, s->queued);
  mark_drop(e->mark);
  e->mark = order_mark(op);
}

/* From now on they work for this launch, as reports say. */
static void name_lanes(const struct exec *e, const struct stream *s) {
  static uint64_t launches;
  launches++;
  for (int i = 0; i < e->lane_count; i++) {
    struct stream *lane = e->lanes[i];
    label_drop(lane->label);
    lane->label = label_share(s->label);
    lane->launch = launches;
  }
}

static CUresult find(CUgraphExec exec, CUstream stream, struct exec **e, struct stream **s) {
  if (!object_find(exec, EXEC)) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = stream_find_current_ready(stream, FOR_WORK, s);
  if (r) return r;
  *e = object_find(exec, EXEC);
  return *e ? capture_forbids_launch(*s) : CUDA_ERROR_INVALID_VALUE;
}

/* Nothing is uploaded, but it has its place in the stream. */
CUresult exec_upload(CUgraphExec exec, CUstream stream) {
  struct exec *e;
  struct stream *s;
  CUresult r = find(exec, stream, &e, &s);
  return r ? r : push_begin(e, s);
}

CUresult exec_launch(CUgraphExec exec, CUstream stream) {
  struct exec *e;
  struct stream *s;
  CUresult r = find(exec, stream, &e, &s);
  if (!r) r = start(e, s);
  if (!r) r = make_all(e);
  if (r) return r;
  push_begin(e, s);
  struct op *begin = s->tail;
  name_lanes(e, s);
  for (int i = 0; i < e->count; i++) {
    CUresult one = push(e->nodes[i], lane_of(e, e->nodes[i]), begin);
    if (!r) r = one;
  }
  push_end(e, s);
  return r;
}

CUresult exec_destroy(CUgraphExec exec) {
  struct exec *e = object_find(exec, EXEC);
  if (!e) return CUDA_ERROR_INVALID_VALUE;
  object_unref(&e->object);
  return CUDA_SUCCESS;
}
