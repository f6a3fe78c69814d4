/* Host accesses that are not calls. The host must not touch memory that a queued copy is about to
 * read or write. So the source of a copy is hashed and compared when the copy is done, and its
 * destination is filled with garbage: the copy might write it at any moment from then on. */
#include "sim.h"

#include <string.h>

enum { POISON = 0xa5 };

/* Four lanes, so that it costs about as much as reading the memory. */
static uint64_t hash_of(const char *memory, size_t size) {
  enum { LANES = 4 };
  uint64_t state = size, lane[LANES] = {size, 1, 2, 3}, word;
  for (; size >= LANES * sizeof word; memory += LANES * sizeof word, size -= LANES * sizeof word)
    for (size_t i = 0; i < LANES; i++) {
      memcpy(&word, memory + i * sizeof word, sizeof word);
      lane[i] = (lane[i] ^ word) * 0x9e3779b97f4a7c15;
      lane[i] ^= lane[i] >> 29;
    }
  for (; size; memory++, size--) lane[0] = (lane[0] ^ (unsigned char)*memory) * 0x100000001b3;
  for (size_t i = 0; i < LANES; i++) state = (state ^ lane[i]) * 0xbf58476d1ce4e5b9 + (state >> 31);
  return state;
}

/* Memory without a block is pageable memory of the host: all of it counts as one. */
static struct traffic *traffic_of(struct block *b) { return b ? &b->traffic : &sim.pageable; }

static bool host_reaches(const struct block *b) { return !b || b->memory != DEVICE_MEMORY; }

/* A host function, another process, a held event or a pause may hold the operation back for as long
 * as the program wants, and the host may use the memory meanwhile. */
static bool may_begin_at_any_time(const struct stream *s, const struct op *op) {
  if (sim.paused || s->gated > s->done) return false;
  if (op->kind == OP_HOST || op->remote || (op->event && op->event->held)) return false;
  for (int i = 0; i < op->after.count; i++) {
    const struct stream *other = op->after.at[i].stream;
    if (other->gated > other->done) return false;
  }
  return true;
}

static bool overlap(const struct op *op) { return op->to < op->from + op->size && op->from < op->to + op->size; }

static void watch_copy(struct op *op, struct traffic *from, struct traffic *to) {
  if (!op->staging && host_reaches(op->from_block) && !from->writes) {
    op->hashed = true;
    op->hash = hash_of(op->from, op->size);
  }
  if (host_reaches(op->to_block) && !to->reads && !to->writes && !overlap(op)) memset(op->to, POISON, op->size);
}

static bool reads(const struct op *op) { return op->kind == OP_COPY && !op->staging; }

/* The host accesses nothing while it waits for a copy itself. */
void watch_queued(struct stream *s, struct op *op) {
  if (!sim.options.race) return;
  const bool free = may_begin_at_any_time(s, op);
  if (!free) s->gated = op->seq;
  if (op->kind != OP_COPY && op->kind != OP_SET) return;
  struct traffic *from = traffic_of(op->from_block), *to = traffic_of(op->to_block);
  if (op->kind == OP_COPY && free && !op->waited && !s->context->fault) watch_copy(op, from, to);
  if (reads(op)) from->reads++;
  to->writes++;
  op->watched = true;
}

void watch_begins(struct op *op) {
  if (!op->hashed || hash_of(op->from, op->size) == op->hash) return;
  violation_of(op,
               "%s%s reads %zu bytes of %s memory at 0x%zx that the host changed after the copy was queued: "
               "wait for the copy before writing to its source (seen with schedule=%s,delay=%llu,seed=%llu: not every "
               "schedule shows it)",
               op->call, op->stream->captured ? ", captured," : "", op->size,
               op->from_block ? "page-locked or managed" : "pageable", (size_t)(uintptr_t)op->from,
               sim.options.lazy     ? "lazy"
               : sim.options.random ? "random"
                                    : "inorder",
               (unsigned long long)sim.options.delay, (unsigned long long)sim.options.seed);
}

void watch_ended(struct op *op) {
  if (!op->watched) return;
  if (reads(op)) traffic_of(op->from_block)->reads--;
  traffic_of(op->to_block)->writes--;
}
