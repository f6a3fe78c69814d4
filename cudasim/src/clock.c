/* Vector clocks, and marks of them. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

uint64_t clock_at(const struct clock *c, int slot) { return c && slot < c->count ? c->at[slot] : 0; }

struct clock *clock_share(struct clock *c) {
  if (c) c->refs++;
  return c;
}

void clock_drop(struct clock *c) {
  if (c && !--c->refs) free(c);
}

/* Makes the clock one with a single reference, with room for that many slots. */
static struct clock *own(struct clock **clock, int count) {
  struct clock *old = *clock;
  if (old && old->refs == 1 && old->count >= count) return old;
  if (old && old->count > count) count = old->count;
  struct clock *c = fresh(sizeof *c + (size_t)count * sizeof *c->at);
  c->refs = 1;
  c->count = count;
  if (old) memcpy(c->at, old->at, (size_t)old->count * sizeof *c->at);
  clock_drop(old);
  return *clock = c;
}

void clock_set(struct clock **clock, int slot, uint64_t epoch) { own(clock, slot + 1)->at[slot] = epoch; }

void clock_join(struct clock **clock, struct clock *other) {
  struct clock *c = *clock;
  if (c == other || !other) return;
  if (!c) {
    *clock = clock_share(other);
    return;
  }
  for (int i = 0; i < other->count; i++) {
    if (other->at[i] <= clock_at(c, i)) continue;
    c = own(clock, other->count);
    c->at[i] = other->at[i];
  }
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
