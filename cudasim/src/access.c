/* Accesses of memory: of each byte range of a block, the last write and the reads since. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct entry {
  struct access *access;
  bool write;
  bool done; /* as a library knows that lets the memory be given back */
};

/* A node of a treap: by address, and a heap by priority. Ranges are disjoint; memory that was never
 * accessed has none. An entry is dropped when a later one is ordered after it and implies it: so
 * there is one write, and one read for each stream, or more where a program has races. */
struct range {
  uintptr_t start, end;
  struct entry *entries;
  int count, room;
  uint32_t priority;
  struct range *left, *right;
};

/* The access that is being checked. */
struct look {
  struct block *block;
  struct access *access;
  struct host before; /* the accesses before it */
  bool write, free;
  const struct access *reported;
  struct range *done, *last; /* the ranges that it was entered in, and the last of them */
  uintptr_t next;            /* start of the part that is not checked yet */
};

static struct access *shared(struct access *a) {
  if (a) a->refs++;
  return a;
}

static struct range *range_new(struct ranges *ranges, uintptr_t start, uintptr_t end) {
  static uint32_t random = 1;
  struct range *r = fresh(sizeof *r);
  random = random * 1664525 + 1013904223;
  r->priority = random;
  r->start = start;
  r->end = end;
  ranges->count++;
  return r;
}

static void add(struct range *r, struct access *a, bool write) {
  r->entries = grow(r->entries, r->count, &r->room, sizeof *r->entries);
  r->entries[r->count++] = (struct entry){shared(a), write, false};
}

static void range_free(struct ranges *ranges, struct range *r) {
  for (int i = 0; i < r->count; i++) access_drop(r->entries[i].access);
  free(r->entries);
  free(r);
  ranges->count--;
}

static void tree_free(struct ranges *ranges, struct range *r) {
  if (!r) return;
  tree_free(ranges, r->left);
  tree_free(ranges, r->right);
  range_free(ranges, r);
}

void ranges_free(struct ranges *ranges) {
  tree_free(ranges, ranges->root);
  *ranges = (struct ranges){0};
}

static struct range *merge(struct range *left, struct range *right) {
  if (!left || !right) return left ? left : right;
  if (left->priority > right->priority) {
    left->right = merge(left->right, right);
    return left;
  }
  right->left = merge(left, right->left);
  return right;
}

/* Splits the range at the address; r keeps the part before it. */
static struct range *cut(struct ranges *ranges, struct range *r, uintptr_t at) {
  struct range *rest = range_new(ranges, at, r->end);
  r->end = at;
  for (int i = 0; i < r->count; i++) {
    add(rest, r->entries[i].access, r->entries[i].write);
    rest->entries[i].done = r->entries[i].done;
  }
  return rest;
}

static void split(struct ranges *ranges, struct range *r, uintptr_t at, struct range **left, struct range **right) {
  if (!r) {
    *left = *right = NULL;
  } else if (r->start >= at) {
    split(ranges, r->left, at, left, &r->left);
    *right = r;
  } else {
    split(ranges, r->right, at, &r->right, right);
    *left = r;
    if (r->end > at) *right = merge(cut(ranges, r, at), *right);
  }
}

/* ---- conflicts ---- */

/* Memory that a library keeps has no user. */
static bool is_kept(const struct access *a) { return a->slot < 0; }

/* Memory may be given back after an access of the host, which is over when it was made. */
static bool ordered(const struct look *l, const struct entry *e) {
  if (l->free && (e->done || !e->access->stream)) return true;
  return !is_kept(e->access) && host_knows(&l->before, e->access);
}

/* Named in the order in which the two were queued, even if the second was ordered first. */
static void report(struct look *l, const struct range *r, const struct access *other, bool wrote) {
  if (l->reported == other) return;
  l->reported = other;
  const struct extent s = {l->block, r->start, r->end};
  if (is_kept(other) && l->access->queued < other->queued)
    conflict_pending(&s, l->access, l->write, other->caller);
  else if (is_kept(other))
    conflict_kept(&s, other, l->access, l->write);
  else if (l->access->queued < other->queued)
    conflict(&s, l->access, l->write, other, wrote);
  else
    conflict(&s, other, wrote, l->access, l->write);
}

/* Drops entries that the access implies: a write implies all accesses that it is ordered after, a
 * read implies the reads. */
static void check(struct look *l, struct range *r) {
  int kept = 0;
  for (int i = 0; i < r->count; i++) {
    const struct entry e = r->entries[i];
    const bool before = ordered(l, &e);
    if (!before && (l->write || e.write)) report(l, r, e.access, e.write);
    if (before && (l->write || !e.write))
      access_drop(e.access);
    else
      r->entries[kept++] = e;
  }
  r->count = kept;
}

/* ---- entering an access ---- */

static bool alike(const struct range *a, const struct range *b) {
  if (a->end != b->start || a->count != b->count) return false;
  for (int i = 0; i < a->count; i++)
    if (a->entries[i].access != b->entries[i].access || a->entries[i].write != b->entries[i].write ||
        a->entries[i].done != b->entries[i].done)
      return false;
  return true;
}

static void enter_range(struct look *l, struct range *r) {
  add(r, l->access, l->write);
  l->next = r->end;
  if (l->last && alike(l->last, r)) {
    l->last->end = r->end;
    range_free(&l->block->ranges, r);
    return;
  }
  l->done = merge(l->done, r);
  l->last = r;
}

/* The part up to `end` was never accessed. */
static void enter_new(struct look *l, uintptr_t end) {
  if (l->next < end) enter_range(l, range_new(&l->block->ranges, l->next, end));
}

static void enter_tree(struct look *l, struct range *r) {
  if (!r) return;
  struct range *right = r->right;
  enter_tree(l, r->left);
  r->left = r->right = NULL;
  enter_new(l, r->start);
  check(l, r);
  enter_range(l, r);
  enter_tree(l, right);
}

/* ---- forgetting ---- */

static bool settle(struct range *r) {
  int kept = 0;
  for (int i = 0; i < r->count; i++)
    if (order_settled(r->entries[i].access))
      access_drop(r->entries[i].access);
    else
      r->entries[kept++] = r->entries[i];
  r->count = kept;
  return !kept;
}

static struct range *settle_tree(struct ranges *ranges, struct range *r) {
  if (!r) return NULL;
  r->left = settle_tree(ranges, r->left);
  r->right = settle_tree(ranges, r->right);
  if (!settle(r)) return r;
  struct range *rest = merge(r->left, r->right);
  range_free(ranges, r);
  return rest;
}

/* Drops accesses that all future work is ordered after, since they can no longer conflict. Runs
 * when the number of ranges has doubled, so that the cost per access is small. */
static void forget(struct ranges *ranges) {
  enum { FEW = 1024 };
  if (ranges->count <= (ranges->limit ? ranges->limit : FEW)) return;
  ranges->root = settle_tree(ranges, ranges->root);
  ranges->limit = 2 * ranges->count < FEW ? FEW : 2 * ranges->count;
}

static void enter(struct look *l, uintptr_t start, uintptr_t end) {
  struct ranges *ranges = &l->block->ranges;
  struct range *before, *touched, *after;
  split(ranges, ranges->root, start, &before, &touched);
  split(ranges, touched, end, &touched, &after);
  l->next = start;
  enter_tree(l, touched);
  enter_new(l, end);
  ranges->root = merge(merge(before, l->done), after);
  forget(ranges);
}

void access_by(struct op *op, struct block *b, const char *memory, size_t size, bool write) {
  if (!op->access || !b || !size) return;
  const uintptr_t start = (uintptr_t)memory - (uintptr_t)b->shadow;
  struct look l = {.block = b, .access = op->access, .before = {.slot = -1}, .write = write};
  l.free = op->kind == OP_FREE;
  /* An allocation is ordered after no access of the memory that it allocates. */
  if (op->kind != OP_ALLOC) l.before.clock = op->clock;
  enter(&l, start, start + size);
}

void access_by_host(const char *call, struct block *b, uintptr_t address, size_t size, bool write) {
  if (!sim.options.race || !size) return;
  struct access *a = access_new(call, NULL, caller_of_call());
  const struct host *h = host_of_call();
  access_made(a, h->slot, h->epoch);
  struct look l = {.block = b, .access = a, .before = *h, .write = write};
  enter(&l, address, address + size);
  access_drop(a);
}

/* ---- memory that libraries keep ---- */

static struct range *take_out(struct block *b, uintptr_t start, uintptr_t end, struct range **before,
                              struct range **after) {
  struct range *touched;
  split(&b->ranges, b->ranges.root, start, before, &touched);
  split(&b->ranges, touched, end, &touched, after);
  return touched;
}

/* A block is kept while all of it is. */
static void count_kept(struct block *b, const struct range *r) {
  if (!r) return;
  count_kept(b, r->left);
  for (int i = 0; i < r->count; i++)
    if (is_kept(r->entries[i].access)) b->kept_bytes -= r->end - r->start;
  count_kept(b, r->right);
}

static void check_unused(struct look *l, const struct range *r, struct caller *giver) {
  if (!r) return;
  check_unused(l, r->left, giver);
  for (int i = 0; i < r->count; i++) {
    const struct entry *e = &r->entries[i];
    if (ordered(l, e) || l->reported == e->access) continue;
    l->reported = e->access;
    conflict_pending(&(struct extent){l->block, r->start, r->end}, e->access, e->write, giver);
  }
  check_unused(l, r->right, giver);
}

static void mark_done(struct range *r, const struct host *host) {
  if (!r) return;
  mark_done(r->left, host);
  for (int i = 0; i < r->count; i++)
    if (!is_kept(r->entries[i].access) && host_knows(host, r->entries[i].access)) r->entries[i].done = true;
  mark_done(r->right, host);
}

void access_done(struct block *b, uintptr_t address, size_t size, const struct host *host) {
  struct range *before, *after, *touched = take_out(b, address, address + size, &before, &after);
  mark_done(touched, host);
  b->ranges.root = merge(merge(before, touched), after);
}

/* What was accessed before is forgotten: the host has waited for it, or the context ends with all of it. */
void access_keep(struct block *b, uintptr_t address, size_t size, const struct host *host, struct caller *giver) {
  struct range *before, *after, *touched = take_out(b, address, address + size, &before, &after);
  struct look l = {.block = b, .before = *host, .free = true};
  if (!b->context->object.dead) check_unused(&l, touched, giver);
  count_kept(b, touched);
  tree_free(&b->ranges, touched);
  struct access *a = access_new(self()->call, NULL, caller_of_call());
  struct range *kept = range_new(&b->ranges, address, address + size);
  add(kept, a, true);
  access_drop(a);
  b->ranges.root = merge(merge(before, kept), after);
  b->kept_bytes += size;
  block_take_back(b, address, size);
  block_keep(b, b->kept_bytes == b->size);
}

void access_hand_out(struct block *b, uintptr_t address, size_t size) {
  struct range *before, *after, *touched = take_out(b, address, address + size, &before, &after);
  count_kept(b, touched);
  tree_free(&b->ranges, touched);
  b->ranges.root = merge(before, after);
  block_hand_out(b, address, size);
  block_keep(b, false);
}

/* ---- declared by tests ---- */

static void declare(const char *call, uintptr_t address, size_t size, bool write, void *from) {
  struct caller *place = caller_seen(from);
  sim_lock();
  self()->place = place;
  for (uintptr_t end = address + size; address < end;) {
    struct block *b = block_at(address);
    if (!b) break; /* pageable memory is not watched */
    size_t part = b->size - (address - b->address);
    if (part > end - address) part = end - address;
    if (b->memory == DEVICE_MEMORY)
      violation("%s of device memory at 0x%zx", call, (size_t)address);
    else {
      exclusive_check(call, b, address);
      access_by_host(call, b, address, part, write);
    }
    address += part;
  }
  sim_unlock();
}

void cudasim_host_read(const void *address, size_t size) {
  declare("cudasim_host_read", (uintptr_t)address, size, false, HERE);
}

void cudasim_host_write(void *address, size_t size) {
  declare("cudasim_host_write", (uintptr_t)address, size, true, HERE);
}
