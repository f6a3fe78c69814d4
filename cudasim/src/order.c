/* The order of operations: vector clocks. */
#include "sim.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdlib.h>
#include <string.h>

/* ---- slots ---- */

/* A slot outlives its stream until the host knows the last operation of it; then a new stream goes
 * on with it, and a clock that knows an operation of the new one rightly knows all of the old. */
struct slot {
  bool used;
  uint64_t epoch;
};

static struct slot *slots;
static int slot_count, slot_room;

void order_stream_new(struct stream *s) {
  int i = 1; /* 0 is the host's */
  while (i < slot_count && (slots[i].used || clock_at(sim.host.clock, i) < slots[i].epoch)) i++;
  while (i >= slot_count) {
    slots = grow(slots, slot_count, &slot_room, sizeof *slots);
    slots[slot_count++] = (struct slot){0};
  }
  slots[i].used = true;
  s->slot = i;
  s->epoch = slots[i].epoch;
}

/* The work of a stream that is gone still counts: for a wait for its context, and for the
 * legacy stream. */
void order_stream_end(struct stream *s) {
  exclusive_stream_end(s);
  clock_join(&s->clock, s->awaited);
  clock_join(&s->context->retired, s->clock);
  if (!(s->flags & CU_STREAM_NON_BLOCKING)) clock_join(&s->context->retired_blocking, s->clock);
  clock_drop(s->clock);
  clock_drop(s->seen);
  clock_drop(s->awaited);
  s->clock = s->seen = s->awaited = NULL;
  slots[s->slot] = (struct slot){false, s->epoch};
}

/* ---- operations ---- */

static bool is_own(const void *address) {
  Dl_info there, here;
  return dladdr(address, &there) && dladdr(&sim, &here) && there.dli_fbase == here.dli_fbase;
}

/* Leaves out the frames of the simulator itself and of the functions that it called to get them. */
static char *stack_of_call(void) {
  void *frames[24];
  int count = backtrace(frames, sizeof frames / sizeof *frames), own = count;
  while (own > 0 && !is_own(frames[own - 1])) own--;
  char **names = backtrace_symbols(frames, count), *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  if (!f) abort();
  for (int i = own; names && i < count; i++) {
    const char *slash = strrchr(names[i], '/'), *name = slash ? slash + 1 : names[i];
    fprintf(f, "%s%.*s", i > own ? " < " : "", (int)strcspn(name, " "), name); /* without the address */
  }
  fclose(f);
  free(names);
  return text;
}

struct access *access_new(const char *call, const struct stream *stream) {
  static uint64_t queued;
  struct access *a = fresh(sizeof *a);
  a->refs = 1;
  a->queued = ++queued;
  a->call = call;
  if (stream) {
    a->role = stream->role;
    a->stream = stream->object.handle;
  }
  if (sim.options.stacks) a->stack = stack_of_call();
  return a;
}

void access_drop(struct access *a) {
  if (!a || --a->refs) return;
  free(a->stack);
  free(a);
}

/* Captures the predecessors of an operation when it is queued: later actions of the host are not
 * among them. */
void order_queued(struct stream *s, struct op *op) {
  if (!sim.options.race) return;
  op->known = clock_share(sim.host.clock);
  op->host_epoch = sim.host.epoch++;
  marks_add(&op->awaited, mark_share(s->context->barrier_mark));
  marks_add_clock(&op->awaited, s->awaited);
  clock_drop(s->awaited);
  s->awaited = NULL;
  for (struct stream *other = s->context->streams; other; other = other->next)
    if (stream_precedes(other, s)) marks_add_clock(&op->awaited, other->awaited);
  if (op->blocks[0]) op->access = access_new(op->call, s);
}

static void learn_host(struct stream *s, struct clock *known, uint64_t epoch) {
  if (known != s->seen) {
    clock_join(&s->clock, known);
    clock_drop(s->seen);
    s->seen = clock_share(known);
  }
  if (epoch > clock_at(s->clock, 0)) clock_set(&s->clock, 0, epoch);
}

/* In the streams that the legacy rule orders it after, no later work has run: it would have had to
 * wait for this operation. So their clocks are still those of the time when it was queued. */
static void learn_legacy(struct stream *s, struct clock **clock) {
  for (const struct stream *other = s->context->streams; other; other = other->next)
    if (stream_precedes(other, s)) clock_join(clock, other->clock);
  if (s->role == LEGACY) clock_join(clock, s->context->retired_blocking);
}

void order_begins(struct stream *s, struct op *op) {
  if (!sim.options.race) return;
  learn_host(s, op->known, op->host_epoch);
  for (int i = 0; i < op->awaited.count; i++) clock_join(&s->clock, op->awaited.at[i]->clock);
  learn_legacy(s, &s->clock);
  clock_set(&s->clock, s->slot, ++s->epoch);
  op->clock = clock_share(s->clock);
  exclusive_begins(s, op);
  if (op->access) {
    op->access->slot = s->slot;
    op->access->epoch = s->epoch;
  }
  if (op->kind == OP_HOST) clock_join(&sim.host.clock, s->clock);
}

/* After a host function, its stream is ordered after everything that the host has waited for by
 * then. */
void order_ends(struct stream *s, struct op *op) {
  if (!sim.options.race) return;
  if (op->kind == OP_HOST) learn_host(s, sim.host.clock, sim.host.epoch++);
  if (op->mark) op->mark->clock = clock_share(s->clock);
}

void order_freed(struct op *op) {
  clock_drop(op->known);
  clock_drop(op->clock);
  marks_free(&op->awaited);
  mark_drop(op->mark);
  access_drop(op->access);
}

/* ---- events ---- */

static struct mark *mark_of(struct op *op) {
  if (!op->mark) op->mark = mark_new();
  return mark_share(op->mark);
}

void order_recorded(struct event *e, struct op *op) {
  if (!sim.options.race) return;
  mark_drop(e->mark);
  e->mark = mark_of(op);
}

void order_waits(struct op *op, const struct event *e) { marks_add(&op->awaited, mark_share(e->mark)); }

/* Orders the stream after an event that is complete, for which no operation is queued: all work
 * before it has completed. */
void order_waited(struct stream *s, const struct event *e) {
  if (!sim.options.race) return;
  if (e->mark) clock_join(&s->awaited, e->mark->clock);
  if (s->context->barrier_mark) clock_join(&s->awaited, s->context->barrier_mark->clock);
  learn_legacy(s, &s->awaited);
  for (struct stream *other = s->context->streams; other; other = other->next)
    if (stream_precedes(other, s)) clock_join(&s->awaited, other->awaited);
  clock_join(&s->awaited, sim.host.clock);
  clock_set(&s->awaited, 0, sim.host.epoch++);
}

void order_barrier(struct context *c, struct stream *s) {
  point_set(&c->barrier, s, s->queued);
  if (!sim.options.race) return;
  mark_drop(c->barrier_mark);
  c->barrier_mark = s->tail ? mark_of(s->tail) : NULL;
}

/* ---- the host ---- */

void marks_of_stream(struct marks *marks, struct stream *s) {
  if (!sim.options.race) return;
  if (s->tail)
    marks_add(marks, mark_of(s->tail));
  else
    marks_add_clock(marks, s->clock);
  marks_add_clock(marks, s->awaited);
}

void marks_of_context(struct marks *marks, struct context *c) {
  if (!sim.options.race) return;
  for (struct stream *s = c->streams; s; s = s->next) marks_of_stream(marks, s);
  marks_add_clock(marks, c->retired);
}

void host_learns_mark(const struct mark *m) {
  if (m) clock_join(&sim.host.clock, m->clock);
}

void host_learns(struct marks *marks) {
  for (int i = 0; i < marks->count; i++) host_learns_mark(marks->at[i]);
  marks_free(marks);
}

static bool knows(struct clock *clock, uint64_t host_epoch, const struct access *a) {
  return a->slot ? clock_at(clock, a->slot) >= a->epoch : a->epoch <= host_epoch;
}

/* The host only ever learns, so the first operation of a queue knows the least. */
bool order_settled(const struct access *a) {
  if (!knows(sim.host.clock, sim.host.epoch, a)) return false;
  for (const struct context *c = sim.contexts; c; c = c->next)
    for (const struct stream *s = c->streams; s; s = s->next)
      if (s->first && !knows(s->first->known, s->first->host_epoch, a)) return false;
  return true;
}
