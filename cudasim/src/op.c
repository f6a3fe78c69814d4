/* Operations: the work of streams. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct op *op_new(int kind) {
  struct op *op = fresh(sizeof *op);
  op->kind = kind;
  op->call = self()->call;
  op->caller = caller_of_call();
  return op;
}

void op_touch(struct op *op, struct block *block) {
  if (!block) return;
  block->refs++;
  op->blocks[op->blocks[0] != NULL] = block;
}

void op_free(struct op *op) {
  for (int i = 0; i < 2; i++)
    if (op->blocks[i]) block_unref(op->blocks[i]);
  if (op->event) object_unref(&op->event->object);
  if (op->remote) object_unref(&op->remote->object);
  points_free(&op->after);
  order_freed(op);
  free(op->staging);
  free(op);
}

bool op_is_transfer(const struct op *op) { return op->kind == OP_COPY && (op->bytes == HTOD || op->bytes == DTOH); }

CUresult op_push(struct stream *s, struct op *op) {
  CUresult r = s->context->object.dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED
               : s->object.dead        ? CUDA_ERROR_INVALID_HANDLE
                                       : CUDA_SUCCESS;
  if (!r && !capture_takes(s, op, &r)) r = op->kind == OP_HOST ? functions_start(s->context) : CUDA_SUCCESS;
  if (!r && !s->capture) r = stream_start(s);
  if (r || s->capture) {
    op_free(op);
    return r;
  }
  for (struct stream *other = s->context->streams; other; other = other->next)
    if (stream_precedes(other, s)) points_add_all(&op->after, other);
  points_add(&op->after, s->context->barrier);
  op->stream = s;
  op->seq = s->queued + 1;
  op->serial = sim.queued++;
  order_queued(op);
  s->queued = op->seq;
  s->copies += op_is_transfer(op);
  if (s->tail)
    s->tail->next = op;
  else
    s->first = op;
  s->tail = op;
  watch_queued(s, op);
  /* The program may wait without a call for the effect of a host function. */
  if (op->kind == OP_HOST) stream_demand(s, op->seq);
  pthread_cond_broadcast(&s->changed);
  return CUDA_SUCCESS;
}

static void set(char *to, uint32_t value, int width, size_t size) {
  if (width == 1) {
    memset(to, (int)value, size);
    return;
  }
  for (size_t i = 0; i < size; i += (size_t)width) memcpy(to + i, &value, (size_t)width); /* little endian */
}

/* In pieces: above some megabytes the C library writes past the caches, which costs more than
 * it saves where the copy is measured against one by the host. */
static void move(char *to, const char *from, size_t size) {
  enum { PIECE = 256 << 10 };
  if (to < from + size && from < to + size) {
    memmove(to, from, size);
    return;
  }
  for (; size > PIECE; to += PIECE, from += PIECE, size -= PIECE) memcpy(to, from, PIECE);
  memcpy(to, from, size);
}

/* Without the lock: it may take long. */
static void touch_memory(const struct op *op) {
  sim.running++;
  ipc_touch(op);
  touch_begin();
  if (op->kind == OP_SET)
    set(op->to, op->value, op->width, op->size);
  else
    move(op->to, op->from, op->size);
  touch_end();
  ipc_untouch(op);
  sim.running--;
  if (sim.paused) pthread_cond_broadcast(&sim.idle);
  sim.bytes[op->bytes] += op->size;
  if (op->staged) sim.staged_bytes += op->size;
}

static void call_host(const struct op *op, CUresult fault) {
  struct thread *t = self();
  sim.running++;
  t->in_host_function = true;
  sim_unlock();
  if (op->callback) op->callback(op->callback_stream, fault, op->data);
  if (op->host && !fault) op->host(op->data);
  sim_lock();
  t->in_host_function = false;
  sim.running--;
  if (sim.paused) pthread_cond_broadcast(&sim.idle);
}

/* The accesses of the operation. The allocation and the free of stream-ordered memory are writes:
 * no use may come before the one or after the other. */
void op_accesses(struct op *op) {
  if (op->stream->context->fault) return;
  struct block *b = op->blocks[0];
  switch (op->kind) {
    case OP_COPY:
      if (!op->staging) access_by(op, op->from_block, op->from, op->size, false);
      /* fall through */
    case OP_SET: access_by(op, op->to_block, op->to, op->size, true); break;
    case OP_ALLOC:
    case OP_FREE: access_by(op, b, (char *)b->address + b->shadow, b->size, true); break;
    default: break;
  }
}

/* Memory that was freed since the operation was queued: a real device faults, or reads or
 * overwrites memory that has a new owner. Here it always faults. */
static bool may_run(struct context *c, const struct op *op) {
  for (int i = 0; i < 2 && !c->fault; i++) {
    const struct block *b = op->blocks[i];
    if (!b || !b->dead) continue;
    violation_of(op, "%s%s touched memory at 0x%zx, from %s, after it was freed", op->call,
                 op->stream->captured ? ", captured," : "", (size_t)b->address, b->call);
    c->fault = CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return !c->fault;
}

static void run(struct stream *s, struct op *op) {
  struct context *c = s->context;
  switch (op->kind) {
    case OP_COPY:
    case OP_SET:
      if (!may_run(c, op)) break;
      watch_begins(op);
      touch_memory(op);
      break;
    case OP_HOST: call_host(op, c->fault); break;
    case OP_RECORD:
      if (op->event->record.stream == s && op->event->record.seq == op->seq) op->event->time = nanoseconds();
      ipc_event_done(op->event, op->number);
      break;
    case OP_PREFETCH: may_run(c, op); break;
    case OP_WAIT:
    case OP_ALLOC: break;
    case OP_FREE: block_kill(op->blocks[0]); break;
  }
}

void op_run(struct op *op) {
  order_begins(op);
  run(op->stream, op);
  watch_ended(op);
  order_ends(op);
}
