/* The order of operations: vector clocks. */
#include "sim.h"

#include <stdlib.h>

/* ---- slots ---- */

/* A slot outlives its stream while there are accesses of it, or until the host knows the last operation;
 * then a new stream goes on with it, and a clock that knows an operation of the new one rightly knows all
 * of the old. */
struct slot {
  bool used;
  uint64_t epoch;
  uint64_t accesses; /* that are remembered */
};

static struct slot *slots;
static int slot_count, slot_room;

static int slot_new(void) {
  slots = grow(slots, slot_count, &slot_room, sizeof *slots);
  slots[slot_count] = (struct slot){.used = true};
  return slot_count++;
}

/* Work of a destroyed stream counts where the host must not touch managed memory meanwhile. */
static bool slot_matters(int i) {
  if (slots[i].used) return true;
  if (clock_at(sim.host.clock, i) >= slots[i].epoch) return false;
  return slots[i].accesses || !sim.options.concurrent_managed_access || sim.options.threads;
}

void order_stream_new(struct stream *s) {
  int i = 1; /* 0 is the host's */
  if (!slot_count) slot_new();
  while (i < slot_count && slot_matters(i)) i++;
  if (i == slot_count) slot_new();
  slots[i].used = true;
  s->slot = i;
  s->epoch = slots[i].epoch;
}

int order_slot_of_thread(void) {
  if (!slot_count) slot_new();
  return slot_new();
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
  slots[s->slot].used = false;
  slots[s->slot].epoch = s->epoch;
}

void order_stream_renew(struct stream *s) {
  order_stream_end(s);
  s->worked = 0;
  order_stream_new(s);
}

/* ---- accesses ---- */

struct access *access_new(const char *call, const struct stream *stream, struct caller *caller) {
  static uint64_t queued;
  struct access *a = fresh(sizeof *a);
  a->refs = 1;
  a->slot = -1;
  a->queued = ++queued;
  a->call = call;
  if (stream) a->stream = label_share(stream->label);
  if (stream && stream->captured) {
    a->captured = label_share(stream->captured);
    a->launch = stream->launch;
    a->launcher = caller_of_call();
  }
  a->caller = caller;
  return a;
}

void access_made(struct access *a, int slot, uint64_t epoch) {
  if (!slot_count) slot_new();
  a->slot = slot;
  a->epoch = epoch;
  slots[slot].accesses++;
}

void access_drop(struct access *a) {
  if (!a || --a->refs) return;
  if (a->slot >= 0) slots[a->slot].accesses--;
  label_drop(a->stream);
  label_drop(a->captured);
  free(a);
}

/* ---- operations ---- */

/* Operations that come after a host function which has not ended, in the order of their calls. */
static struct op *unordered, **end_of_unordered = &unordered;
static int unordered_internal;

static void postpone(struct op *op) {
  op->postponed = true;
  unordered_internal += op->internal;
  *end_of_unordered = op;
  end_of_unordered = &op->next_unordered;
}

static void unlist(struct op **at) {
  struct op *op = *at;
  *at = op->next_unordered;
  if (!*at) end_of_unordered = at;
  op->postponed = false;
  unordered_internal -= op->internal;
}

/* Reports whether the clock of the stream is that after all that is queued. */
static bool all_ordered(const struct stream *s) { return s->ordered == s->queued; }

static struct mark *mark_of(struct op *op) {
  if (!op->mark) op->mark = mark_new();
  return mark_share(op->mark);
}

static void comes_after(struct op *op, struct mark *m) {
  if (!m) return;
  if (m->clock)
    clock_join(&op->prior, m->clock);
  else
    marks_add(&op->awaited, mark_share(m));
}

static void comes_after_stream(struct op *op, struct stream *s) {
  if (all_ordered(s))
    clock_join(&op->prior, s->clock);
  else
    marks_add(&op->awaited, mark_of(s->tail));
  clock_join(&op->prior, s->awaited);
}

/* What the host knows stays with work that a library does for itself: the stream does not learn it. */
static void learn_host(struct op *op, struct clock **clock) {
  struct stream *s = op->stream;
  if (op->internal) {
    *clock = clock_share(s->clock);
  } else if (op->known == s->seen) {
    if (op->host_epoch > clock_at(*clock, op->host_slot)) clock_set(clock, op->host_slot, op->host_epoch);
    return;
  } else {
    clock_drop(s->seen);
    s->seen = clock_share(op->known);
  }
  clock_join(clock, op->known);
  if (op->host_epoch > clock_at(*clock, op->host_slot)) clock_set(clock, op->host_slot, op->host_epoch);
}

static void order_known(struct op *op) {
  struct stream *s = op->stream;
  s->ordered = op->seq;
  if (op->mark) op->mark->clock = clock_share(s->clock);
}

static void order(struct op *op) {
  struct stream *s = op->stream;
  clock_join(&s->clock, op->prior);
  for (int i = 0; i < op->awaited.count; i++) clock_join(&s->clock, op->awaited.at[i]->clock);
  clock_set(&s->clock, s->slot, ++s->epoch);
  learn_host(op, op->internal ? &op->clock : &s->clock);
  if (!op->internal) op->clock = clock_share(s->clock);
  exclusive_ordered(s, op);
  if (op->access) access_made(op->access, s->slot, s->epoch);
  op_accesses(op);
  if (op->kind != OP_HOST) order_known(op);
}

static bool can_be_ordered(const struct op *op) {
  if (op->stream->ordered != op->seq - 1) return false;
  for (int i = 0; i < op->awaited.count; i++)
    if (!op->awaited.at[i]->clock) return false;
  return true;
}

/* Captures the predecessors of an operation: later actions of the host are not among them. */
void order_queued(struct op *op) {
  struct stream *s = op->stream;
  if (!sim.options.race) return;
  op->internal = host_moment(&op->known, &op->host_slot, &op->host_epoch);
  comes_after(op, s->context->barrier_mark);
  clock_join(&op->prior, s->awaited);
  clock_drop(s->awaited);
  s->awaited = NULL;
  for (struct stream *other = s->context->streams; other; other = other->next)
    if (stream_precedes(other, s)) comes_after_stream(op, other);
  if (s->role == LEGACY) clock_join(&op->prior, s->context->retired_blocking);
  if (op->blocks[0]) op->access = access_new(op->call, s, op->caller);
  if (can_be_ordered(op))
    order(op);
  else
    postpone(op);
}

/* All that comes before a host function has ended, so it was ordered. */
void order_begins(struct op *op) {
  if (sim.options.race && op->kind == OP_HOST) host_learns_clock(op->clock);
}

/* After a host function, its stream is ordered after everything that the host has waited for by
 * then. */
void order_ends(struct op *op) {
  if (!sim.options.race || op->kind != OP_HOST) return;
  struct stream *s = op->stream;
  clock_drop(op->known);
  op->internal = host_moment(&op->known, &op->host_slot, &op->host_epoch);
  learn_host(op, &s->clock);
  order_known(op);
  for (struct op **at = &unordered; *at;) {
    struct op *next = *at;
    if (!can_be_ordered(next)) {
      at = &next->next_unordered;
      continue;
    }
    unlist(at);
    order(next);
  }
}

void order_freed(struct op *op) {
  if (op->postponed) {
    struct op **at = &unordered;
    while (*at != op) at = &(*at)->next_unordered;
    unlist(at);
  }
  clock_drop(op->known);
  clock_drop(op->prior);
  clock_drop(op->clock);
  marks_free(&op->awaited);
  mark_drop(op->mark);
  access_drop(op->access);
}

/* ---- events ---- */

static struct mark *mark_after(struct op *op) {
  struct mark *m = mark_of(op);
  if (!m->clock && op->stream->ordered >= op->seq) m->clock = clock_share(op->clock);
  return m;
}

struct mark *order_mark(struct op *op) { return sim.options.race ? mark_after(op) : NULL; }

void order_after(struct op *op, struct op *before) {
  points_add(&op->after, (struct point){before->stream, before->seq});
  marks_add(&op->awaited, order_mark(before));
}

/* Called when the record was queued as the last operation of its stream. */
void order_recorded(struct event *e, struct op *op) {
  if (!sim.options.race) return;
  mark_drop(e->mark);
  e->mark = mark_after(op);
}

void order_waits(struct op *op, const struct event *e) { comes_after(op, e->mark); }

/* Orders the stream after an event that is complete, for which no operation is queued: all work
 * before it has completed. */
void order_waited(struct stream *s, const struct event *e) {
  if (!sim.options.race) return;
  struct clock *known;
  int slot;
  uint64_t epoch;
  host_moment(&known, &slot, &epoch);
  if (e->mark) clock_join(&s->awaited, e->mark->clock);
  if (s->context->barrier_mark) clock_join(&s->awaited, s->context->barrier_mark->clock);
  for (struct stream *other = s->context->streams; other; other = other->next)
    if (stream_precedes(other, s)) {
      clock_join(&s->awaited, other->clock);
      clock_join(&s->awaited, other->awaited);
    }
  if (s->role == LEGACY) clock_join(&s->awaited, s->context->retired_blocking);
  clock_join(&s->awaited, known);
  clock_drop(known);
  if (epoch > clock_at(s->awaited, slot)) clock_set(&s->awaited, slot, epoch);
}

void order_barrier(struct context *c, struct stream *s) {
  point_set(&c->barrier, s, s->queued);
  if (!sim.options.race) return;
  mark_drop(c->barrier_mark);
  c->barrier_mark = s->tail ? mark_after(s->tail) : NULL;
}

/* ---- the host ---- */

void marks_of_stream(struct marks *marks, struct stream *s) {
  if (!sim.options.race) return;
  if (all_ordered(s))
    marks_add_clock(marks, s->clock);
  else
    marks_add(marks, mark_of(s->tail));
  marks_add_clock(marks, s->awaited);
}

void marks_of_context(struct marks *marks, struct context *c) {
  if (!sim.options.race) return;
  for (struct stream *s = c->streams; s; s = s->next) marks_of_stream(marks, s);
  marks_add_clock(marks, c->retired);
}

/* Threads of the program learn from each other at any time. */
bool order_settled(const struct access *a) {
  if (sim.options.threads || unordered_internal) return false;
  if (a->slot < 0 || !host_knows(&sim.host, a) || !keepers_know(a)) return false;
  if (!unordered) return true;
  const struct host first = {.clock = unordered->known, .slot = unordered->host_slot, .epoch = unordered->host_epoch};
  return host_knows(&first, a);
}
