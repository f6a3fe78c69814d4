/* Address space. Device memory lies in two ranges of the same shape: the program gets
 * addresses in one that nobody can access, and the simulator uses the same offset in
 * the other, its shadow. Memory of the host lies in one range, of which only what is
 * allocated can be accessed. */
#include "sim.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { CLASSES = 48, QUARANTINE = 64 };
static const size_t WANTED = (size_t)64 << 30, SMALL = (size_t)1 << 20, HUGE = (size_t)4 << 20;

/* Freed space is used again by blocks of its size class (a power of two of pages, of
 * which at least the last stays unused), the longest freed first, and not at once. */
struct arena {
  uintptr_t base;
  size_t size, used;
  ptrdiff_t shadow;
  struct {
    struct block *first, **last;
    int count;
  } freed[CLASSES];
};

static struct arena device_arenas[MAX_DEVICES], host_arena;

static void *reserve(size_t size, int protection) {
  void *p = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

/* As much as the system gives. */
static bool arena_open(struct arena *a, bool shadowed) {
  for (size_t size = WANTED; !a->base && size >= SMALL; size /= 2) {
    void *base = reserve(size, PROT_NONE);
    void *shadow = shadowed ? reserve(size, PROT_READ | PROT_WRITE) : base;
    if (base && shadow) {
      a->base = (uintptr_t)base;
      a->size = size;
      a->used = sim.page;
      a->shadow = (ptrdiff_t)((uintptr_t)shadow - a->base);
    } else if (base) {
      munmap(base, size);
    }
  }
  for (int i = 0; i < CLASSES; i++)
    if (!a->freed[i].first) a->freed[i].last = &a->freed[i].first;
  return a->base != 0;
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
  if (!old->next) a->freed[block->size_class].last = &a->freed[block->size_class].first;
  a->freed[block->size_class].count--;
  block->address = old->address;
  free(old);
  return true;
}

static size_t pages(const struct block *b) { return (b->size + sim.page - 1) / sim.page * sim.page; }

bool arena_take(struct block *block) {
  struct arena *a = block->memory == DEVICE_MEMORY ? &device_arenas[block->device] : &host_arena;
  if (!a->base && !arena_open(a, a != &host_arena)) return false;
  if (block->size > a->size / 2) return false;
  block->arena = a;
  block->shadow = a->shadow;
  block->size_class = class_of(block->size);
  size_t extent = sim.page << block->size_class;
  bool room = extent <= a->size - a->used;
  if ((room && a->freed[block->size_class].count <= QUARANTINE) || !reuse(a, block)) {
    if (!room) return false;
    block->address = a->base + a->used;
    a->used += extent;
  }
  /* Large blocks in large pages, as a driver has them: a copy is not to consist of page faults. */
  if (block->size >= HUGE) madvise((void *)(block->address + (uintptr_t)block->shadow), pages(block), MADV_HUGEPAGE);
  if (a != &host_arena) return true;
  return !mprotect((void *)block->address, pages(block), PROT_READ | PROT_WRITE);
}

/* Takes the block. */
void arena_give(struct block *block) {
  struct arena *a = block->arena;
  void *memory = (void *)(block->address + (uintptr_t)block->shadow);
  if (a == &host_arena || block->size >= SMALL) madvise(memory, pages(block), MADV_DONTNEED);
  if (a == &host_arena) mprotect(memory, pages(block), PROT_NONE);
  block->next = NULL;
  *a->freed[block->size_class].last = block;
  a->freed[block->size_class].last = &block->next;
  a->freed[block->size_class].count++;
}

bool arena_owns(uintptr_t address) {
  if (address - host_arena.base < host_arena.size) return true;
  for (int i = 0; i < MAX_DEVICES; i++)
    if (address - device_arenas[i].base < device_arenas[i].size) return true;
  return false;
}
