/* Vector clocks, and marks of them. A clock is a tree whose parts are shared with the clocks that it was
 * made of: so that thousands of streams that know of each other do not take memory for each pair. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum { BITS = 5 };

static bool reaches(const struct clock *c, int slot) { return !(slot >> BITS * (c->depth + 1)); }

static int index_of(const struct clock *c, int slot) { return slot >> BITS * c->depth & (CLOCK_FAN - 1); }

uint64_t clock_at(const struct clock *c, int slot) {
  if (c && !reaches(c, slot)) return 0;
  while (c && c->depth) c = c->below[index_of(c, slot)];
  return c ? c->at[index_of(c, slot)] : 0;
}

struct clock *clock_share(struct clock *c) {
  if (c) c->refs++;
  return c;
}

void clock_drop(struct clock *c) {
  if (!c || --c->refs) return;
  for (int i = 0; c->depth && i < CLOCK_FAN; i++) clock_drop(c->below[i]);
  free(c);
}

static struct clock *node(int depth) {
  struct clock *c = fresh(sizeof *c);
  c->refs = 1;
  c->depth = depth;
  return c;
}

/* Makes the clock one with a single reference; its parts may be shared. */
static struct clock *own(struct clock **clock) {
  struct clock *old = *clock;
  if (old->refs == 1) return old;
  struct clock *c = node(old->depth);
  if (old->depth)
    for (int i = 0; i < CLOCK_FAN; i++) c->below[i] = clock_share(old->below[i]);
  else
    memcpy(c->at, old->at, sizeof c->at);
  clock_drop(old);
  return *clock = c;
}

static void deepen(struct clock **clock) {
  struct clock *top = node((*clock)->depth + 1);
  top->below[0] = *clock;
  *clock = top;
}

void clock_set(struct clock **clock, int slot, uint64_t epoch) {
  if (!*clock) *clock = node(0);
  while (!reaches(*clock, slot)) deepen(clock);
  struct clock *c = own(clock);
  while (c->depth) {
    struct clock **below = &c->below[index_of(c, slot)];
    if (!*below) *below = node(c->depth - 1);
    c = own(below);
  }
  c->at[index_of(c, slot)] = epoch;
}

/* Reports whether everything in b is in a, too. No part of a clock is empty. */
static bool covers(const struct clock *a, const struct clock *b) {
  if (a == b || !b) return true;
  if (!a) return false;
  while (a->depth > b->depth)
    if (!(a = a->below[0])) return false;
  if (a->depth < b->depth) {
    for (int i = 1; i < CLOCK_FAN; i++)
      if (b->below[i]) return false;
    return covers(a, b->below[0]);
  }
  for (int i = 0; i < CLOCK_FAN; i++)
    if (a->depth ? !covers(a->below[i], b->below[i]) : a->at[i] < b->at[i]) return false;
  return true;
}

void clock_join(struct clock **clock, struct clock *other) {
  if (covers(*clock, other)) return;
  if (covers(other, *clock)) {
    clock_drop(*clock);
    *clock = clock_share(other);
    return;
  }
  while ((*clock)->depth < other->depth) deepen(clock);
  struct clock *c = own(clock);
  if (c->depth > other->depth) {
    clock_join(&c->below[0], other);
    return;
  }
  for (int i = 0; i < CLOCK_FAN; i++)
    if (c->depth)
      clock_join(&c->below[i], other->below[i]);
    else if (c->at[i] < other->at[i])
      c->at[i] = other->at[i];
}

/* Returns the first slot from `from` on at which a knows more than b, -1 if there is none. */
int clock_ahead(const struct clock *a, const struct clock *b, int from) {
  for (int slot = from; a && reaches(a, slot); slot++)
    if (clock_at(a, slot) > clock_at(b, slot)) return slot;
  return -1;
}

struct mark *mark_new(void) {
  struct mark *m = fresh(sizeof *m);
  m->refs = 1;
  return m;
}

struct mark *mark_share(struct mark *m) {
  if (m) m->refs++;
  return m;
}

void mark_drop(struct mark *m) {
  if (!m || --m->refs) return;
  clock_drop(m->clock);
  free(m);
}

void marks_add(struct marks *marks, struct mark *m) {
  if (!m) return;
  marks->at = grow(marks->at, marks->count, &marks->room, sizeof *marks->at);
  marks->at[marks->count++] = m;
}

void marks_add_clock(struct marks *marks, struct clock *c) {
  if (!c) return;
  struct mark *m = mark_new();
  m->clock = clock_share(c);
  marks_add(marks, m);
}

void marks_add_all(struct marks *marks, const struct marks *more) {
  for (int i = 0; i < more->count; i++) marks_add(marks, mark_share(more->at[i]));
}

void marks_free(struct marks *marks) {
  for (int i = 0; i < marks->count; i++) mark_drop(marks->at[i]);
  free(marks->at);
  *marks = (struct marks){0};
}
