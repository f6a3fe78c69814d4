/* Whether one operation comes after another. Only stream-ordered memory asks. */
#include "sim.h"

/* What is still pending can come before something only by way of operations that are
 * pending too, so the queues hold the whole answer. */
static bool reaches(struct stream *s, uint64_t seq, struct point target, uint64_t search) {
  if (s == target.stream) return target.seq <= seq;
  if (s->search == search && s->searched >= seq) return false;
  s->search = search;
  s->searched = seq;
  for (const struct op *op = s->first; op && op->seq <= seq; op = op->next)
    for (int i = 0; i < op->after.count; i++) {
      struct point p = op->after.at[i];
      if (point_pending(p) && reaches(p.stream, p.seq, target, search)) return true;
    }
  return false;
}

static bool comes_after(struct stream *s, uint64_t seq, struct point target) {
  static uint64_t searches;
  return !point_pending(target) || reaches(s, seq, target, ++searches);
}

void check_birth(struct stream *s, const struct op *op) {
  for (int i = 0; i < 2; i++) {
    const struct block *b = op->blocks[i];
    if (b && !comes_after(s, op->seq, b->birth))
      violation("%s uses memory at 0x%zx in another stream, not ordered after its %s", op->call,
                (size_t)b->address, b->call);
  }
}

void check_death(struct stream *s, const struct op *op) {
  const struct block *b = op->blocks[0];
  for (const struct context *c = sim.contexts; c; c = c->next)
    for (struct stream *other = c->streams; other; other = other->next)
      for (const struct op *use = other->first; use && b->refs > 2; use = use->next) {
        if ((use->blocks[0] != b && use->blocks[1] != b) ||
            comes_after(s, op->seq, (struct point){other, use->seq}))
          continue;
        violation("%s frees memory at 0x%zx, not ordered after its use by %s in another stream", op->call,
                  (size_t)b->address, use->call);
        return;
      }
}
