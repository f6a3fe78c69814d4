/* Address space. Device memory lies in two ranges of the same shape: the program gets addresses in
 * one that cannot be accessed, and the simulator uses the same offset in the other, its shadow.
 * Memory of the host lies in one range, of which only allocations can be accessed.
 *
 * Space is reserved as it is needed: small blocks share chunks, a large one has a
 * mapping of its own, which ends with it. */
#include "sim.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { CLASSES = 48, QUARANTINE = 64 };
static const size_t SMALL = (size_t)1 << 20, LARGE = (size_t)4 << 20;
static const size_t FIRST_CHUNK = (size_t)4 << 20, LAST_CHUNK = (size_t)256 << 20;
static const size_t QUARANTINED = (size_t)4 << 30;

struct mapping {
  uintptr_t base;
  size_t size, used;
  void *shadow; /* NULL: memory of the host, or gone already */
  struct mapping *next, **back;
  struct mapping *younger; /* of mappings whose block was freed */
};

/* Freed space of small blocks is used again by blocks of their size class (a power of
 * two of pages, of which at least the last stays unused), the longest freed first, and
 * not at once. */
struct arena {
  struct mapping *chunk; /* the one with room */
  size_t chunk_size;
  struct {
    struct block *first, **last;
    int count;
  } freed[CLASSES];
};

static struct arena device_arenas[MAX_DEVICES], host_arena;
static struct mapping *mappings;

/* The addresses of large blocks that were freed: kept for a while, without memory. */
static struct {
  struct mapping *first, **last;
  int count;
  size_t bytes;
} gone = {.last = &gone.first};

static void *reserve(size_t size, int protection) {
  void *p = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

static struct mapping *try_map(size_t size, bool shadowed) {
  void *base = reserve(size, PROT_NONE), *shadow = NULL;
  if (base && shadowed) shadow = reserve(size, PROT_READ | PROT_WRITE);
  if (!base || (shadowed && !shadow)) {
    if (base) munmap(base, size);
    return NULL;
  }
  struct mapping *m = fresh(sizeof *m);
  *m = (struct mapping){(uintptr_t)base, size, sim.page, shadow, mappings, &mappings, NULL};
  if (mappings) mappings->back = &m->next;
  mappings = m;
  return m;
}

static void drop_shadow(struct mapping *m) {
  if (m->shadow) munmap(m->shadow, m->size);
  m->shadow = NULL;
}

static void unmap(struct mapping *m) {
  drop_shadow(m);
  munmap((void *)m->base, m->size);
  *m->back = m->next;
  if (m->next) m->next->back = m->back;
  free(m);
}

static void unmap_oldest(void) {
  struct mapping *m = gone.first;
  gone.first = m->younger;
  if (!gone.first) gone.last = &gone.first;
  gone.count--;
  gone.bytes -= m->size;
  unmap(m);
}

/* Maps memory; if there is no room, ends the mappings of freed blocks first. */
static struct mapping *map(size_t size, bool shadowed) {
  struct mapping *m = try_map(size, shadowed);
  if (m || !gone.first) return m;
  while (gone.first) unmap_oldest();
  return try_map(size, shadowed);
}

static int class_of(size_t size) {
  int class = 0;
  while (sim.page << class < size + sim.page) class++;
  return class;
}

static bool reuse(struct arena *a, struct block *block) {
  struct block *old = a->freed[block->size_class].first;
  if (!old) return false;
  a->freed[block->size_class].first = old->next;
  a->freed[block->size_class].count--;
  block->address = old->address;
  block->shadow = old->shadow;
  free(old);
  return true;
}

static bool has_room(const struct arena *a, size_t extent) {
  return a->chunk && extent <= a->chunk->size - a->chunk->used;
}

/* Each chunk is twice as large as the one before it, where the system gives that. */
static bool open_chunk(struct arena *a, size_t extent) {
  size_t size = a->chunk_size ? 2 * a->chunk_size : FIRST_CHUNK;
  if (size > LAST_CHUNK) size = LAST_CHUNK;
  while (size < extent + sim.page) size *= 2;
  struct mapping *m = NULL;
  while (!m && size >= extent + sim.page) {
    m = map(size, a != &host_arena);
    if (!m) size /= 2;
  }
  if (!m) return false;
  a->chunk = m;
  a->chunk_size = size;
  return true;
}

static bool take_small(struct arena *a, struct block *block) {
  block->size_class = class_of(block->size);
  const size_t extent = sim.page << block->size_class;
  if (a->freed[block->size_class].count > QUARANTINE) return reuse(a, block);
  if (!has_room(a, extent) && !open_chunk(a, extent)) return reuse(a, block);
  struct mapping *m = a->chunk;
  block->address = m->base + m->used;
  block->shadow = m->shadow ? (ptrdiff_t)((uintptr_t)m->shadow - m->base) : 0;
  m->used += extent;
  return true;
}

static size_t pages(const struct block *b) { return (b->size + sim.page - 1) / sim.page * sim.page; }

/* In large pages, as a driver has them, so that page faults do not dominate copies. */
static bool take_large(struct arena *a, struct block *block) {
  if (block->size > SIZE_MAX / 4) return false;
  struct mapping *m = map(pages(block) + 2 * sim.page, a != &host_arena);
  if (!m) return false;
  block->mapping = m;
  block->address = m->base + sim.page;
  block->shadow = m->shadow ? (ptrdiff_t)((uintptr_t)m->shadow - m->base) : 0;
  madvise((void *)(block->address + (uintptr_t)block->shadow), pages(block), MADV_HUGEPAGE);
  return true;
}

bool arena_take(struct block *block) {
  if (sim.ended) return false;
  struct arena *a = block->memory == DEVICE_MEMORY ? &device_arenas[block->device] : &host_arena;
  block->arena = a;
  if (!(block->size < LARGE ? take_small(a, block) : take_large(a, block))) {
    block->arena = NULL;
    return refuse_address(block->size);
  }
  if (a != &host_arena || !mprotect((void *)block->address, pages(block), PROT_READ | PROT_WRITE)) return true;
  return refuse_address(block->size);
}

static void give_small(struct arena *a, struct block *block) {
  void *memory = (void *)(block->address + (uintptr_t)block->shadow);
  if (a == &host_arena || block->size >= SMALL) madvise(memory, pages(block), MADV_DONTNEED);
  if (a == &host_arena) mprotect(memory, pages(block), PROT_NONE);
  block->next = NULL;
  if (!a->freed[block->size_class].first) a->freed[block->size_class].last = &a->freed[block->size_class].first;
  *a->freed[block->size_class].last = block;
  a->freed[block->size_class].last = &block->next;
  a->freed[block->size_class].count++;
}

static void give_large(struct mapping *m) {
  if (!m->shadow) {
    madvise((void *)m->base, m->size, MADV_DONTNEED);
    mprotect((void *)m->base, m->size, PROT_NONE);
  }
  drop_shadow(m);
  *gone.last = m;
  gone.last = &m->younger;
  gone.bytes += m->size;
  gone.count++;
  while (gone.count > QUARANTINE || gone.bytes > QUARANTINED) unmap_oldest();
}

/* Takes the block. After the shutdown there is nothing to unmap, and the addresses may have a new
 * owner. */
void arena_give(struct block *block) {
  if (!sim.ended && !block->mapping) {
    give_small(block->arena, block);
    return;
  }
  if (!sim.ended) give_large(block->mapping);
  free(block);
}

bool arena_owns(uintptr_t address) {
  for (const struct mapping *m = mappings; m; m = m->next)
    if (address - m->base < m->size) return true;
  return false;
}

void arenas_close(void) {
  while (mappings) unmap(mappings);
}
