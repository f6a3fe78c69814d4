/* Events. */
#include "sim.h"

#include <stdlib.h>

CUresult event_new(struct context *c, unsigned flags, struct event **out) {
  struct event *e = fresh(sizeof *e);
  CUresult r = object_add(&e->object, EVENT);
  if (r) {
    free(e);
    return r;
  }
  e->context = c;
  e->context->object.refs++;
  e->flags = flags;
  ledger_object(&e->object);
  *out = e;
  return CUDA_SUCCESS;
}

CUresult event_create(CUevent *event, unsigned flags) {
  struct context *c;
  struct event *e;
  const bool shared = flags & CU_EVENT_INTERPROCESS;
  if (!event || flags & ~(unsigned)CU_EVENT_FLAGS_MASK || (shared && !(flags & CU_EVENT_DISABLE_TIMING)))
    return CUDA_ERROR_INVALID_VALUE;
  CUresult r = current_context(&c);
  if (!r) r = event_new(c, flags, &e);
  if (r) return r;
  if (shared) r = ipc_event_new(e);
  if (r)
    object_unref(&e->object);
  else
    *event = (CUevent)e->object.handle;
  return r;
}

void event_free(struct event *e) {
  sim.held -= e->held;
  nodes_free(&e->nodes);
  ipc_event_free(e);
  point_set(&e->record, NULL, 0);
  mark_drop(e->mark);
  object_unref(&e->context->object);
  free(e);
}

/* A record that is pending keeps the event until it is done. */
CUresult event_destroy(CUevent event) {
  struct event *e = object_find(event, EVENT);
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  if (e->waits && point_pending(e->record))
    violation("%s of an event that another thread waits for in cuEventSynchronize", self()->call);
  object_die(&e->object);
  object_unref(&e->object);
  return CUDA_SUCCESS;
}

CUresult event_record(CUevent event, CUstream stream) {
  struct stream *s;
  CUresult r = stream_find_current_ready(stream, FOR_WORK, &s);
  if (r) return r;
  struct event *e = object_find(event, EVENT);
  if (!e || e->context != s->context) return CUDA_ERROR_INVALID_HANDLE;
  return capture_takes_record(s, e, &r) ? r : event_record_in(e, s);
}

CUresult event_record_in(struct event *e, struct stream *s) {
  uint64_t number;
  CUresult r = ipc_event_record(e, &number);
  if (r) return r;
  struct op *op = op_new(OP_RECORD);
  op->event = e;
  op->number = number;
  e->object.refs++;
  r = op_push(s, op);
  if (r) {
    ipc_event_done(e, number);
    return r;
  }
  capture_forget(e);
  point_set(&e->record, s, s->queued);
  order_recorded(e, op);
  if (number) stream_demand(s, s->queued); /* another process may wait for it */
  return CUDA_SUCCESS;
}

CUresult event_record_with_flags(CUevent event, CUstream stream, unsigned flags) {
  if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  return flags ? capture_record_external(event, stream) : event_record(event, stream);
}

CUresult event_query(CUevent event) {
  const struct event *e = object_find(event, EVENT);
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  if (e->context->fault) return e->context->fault;
  CUresult r = capture_forbids_event(e);
  if (r) return r;
  const uint64_t remote = ipc_event_latest(e);
  if (remote) return ipc_event_pending(e, remote) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  if (point_pending(e->record)) {
    stream_demand(e->record.stream, e->record.seq);
    return CUDA_ERROR_NOT_READY;
  }
  host_learns_mark(e->mark);
  return CUDA_SUCCESS;
}

CUresult event_synchronize(CUevent event) {
  struct event *e = object_find(event, EVENT);
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  if (e->context->fault) return e->context->fault;
  CUresult r = capture_forbids_event(e);
  if (r) return r;
  const uint64_t remote = ipc_event_latest(e);
  if (!e->record.stream || remote) {
    sim.synchronisations++;
    if (remote) ipc_event_wait(e, remote);
    return CUDA_SUCCESS;
  }
  struct mark *mark = mark_share(e->mark); /* the event may be recorded again meanwhile */
  e->object.refs++;
  e->waits++;
  r = stream_wait(e->record.stream, e->record.seq);
  e->waits--;
  object_unref(&e->object);
  host_learns_mark(mark);
  mark_drop(mark);
  return r;
}

CUresult event_elapsed(float *milliseconds, CUevent start, CUevent end) {
  const struct event *from = object_find(start, EVENT), *to = object_find(end, EVENT);
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if (!from || !to || from->context != to->context) return CUDA_ERROR_INVALID_HANDLE;
  if ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
  CUresult r = capture_forbids_captured(from);
  if (!r) r = capture_forbids_captured(to);
  if (r) return r;
  if (!from->record.stream || !to->record.stream) return CUDA_ERROR_INVALID_HANDLE;
  stream_demand(from->record.stream, from->record.seq);
  stream_demand(to->record.stream, to->record.seq);
  if (point_pending(from->record) || point_pending(to->record)) return CUDA_ERROR_NOT_READY;
  host_learns_mark(from->mark);
  host_learns_mark(to->mark);
  *milliseconds = (float)((double)(int64_t)(to->time - from->time) / 1e6);
  return from->context->fault;
}

static CUresult hold(struct event *e, bool held) {
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  sim.held += held - e->held;
  e->held = held;
  pthread_cond_broadcast(&sim.go);
  pthread_cond_broadcast(&sim.ready);
  return CUDA_SUCCESS;
}

int cudasim_event_hold(void *event) {
  sim_lock();
  CUresult r = hold(object_find(event, EVENT), true);
  sim_unlock();
  return (int)r;
}

/* Also of an event that is destroyed but pending: nothing else could complete it. */
int cudasim_event_fire(void *event) {
  sim_lock();
  CUresult r = hold(object_find_dying(event, EVENT), false);
  sim_unlock();
  return (int)r;
}
