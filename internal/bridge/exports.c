#include "exports.h"
#include "counts.h"
#include "fork.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

#define LINE 64

_Static_assert(sizeof(struct cdevice_v0_exports) == LINE, "the spare block begins a cache line");

static struct cdevice_v0_block* spare_of(struct cdevice_v0_exports* e) { return (struct cdevice_v0_block*)(e + 1); }

struct cdevice_v0_exports* cdevice_v0_exports_new(size_t size) {
  size_t lines = (sizeof(struct cdevice_v0_exports) + size + LINE - 1) / LINE * LINE;
  if (lines < size) return NULL;
  void* allocation = malloc(lines + LINE - 1);
  if (allocation == NULL) return NULL;
  uintptr_t apart = -(uintptr_t)allocation % LINE;
  struct cdevice_v0_exports* e = (struct cdevice_v0_exports*)((char*)allocation + apart);
  memset(e, 0, sizeof *e);
  e->spare = CDEVICE_V0_TAKEN;
  e->refs = 1;
  e->size = size;
  e->allocation = allocation;
  spare_of(e)->exports = e;
  cdevice_v0_count(CDEVICE_V0_OWNERS, 1);
  e->handle = cdevice_v0_count(CDEVICE_V0_TREES, 1);
  return e;
}

struct cdevice_v0_block* cdevice_v0_exports_block(uint64_t* exports, size_t size) {
  struct cdevice_v0_exports* e = (struct cdevice_v0_exports*)exports;
  struct cdevice_v0_block* block = malloc(size);
  if (block == NULL) return NULL;
  block->exports = e;
  __atomic_fetch_add(&e->refs, 1, __ATOMIC_RELAXED);
  cdevice_v0_count(CDEVICE_V0_TREES, 1);
  return block;
}

void cdevice_v0_exports_free(uint64_t* exports) {
  free(((struct cdevice_v0_exports*)exports)->allocation);
  cdevice_v0_count(CDEVICE_V0_OWNERS, -1);
}

void cdevice_v0_exports_poison(uint64_t* exports) {
  struct cdevice_v0_exports* e = (struct cdevice_v0_exports*)exports;
  ASAN_POISON_MEMORY_REGION(spare_of(e), e->size);
}

void cdevice_v0_exports_unpoison(uint64_t* exports) {
  struct cdevice_v0_exports* e = (struct cdevice_v0_exports*)exports;
  ASAN_UNPOISON_MEMORY_REGION(spare_of(e), e->size);
}

/* Gives the spare block back, unless the Go side is gone. The release makes every use of the block
 * happen before the export that takes it next, whose acquire is in Go; the acquire makes the close of the Go
 * side happen before the end of the owner. Go's Exports.giveBack is the same. */
static int give_back(struct cdevice_v0_exports* e) {
  cdevice_v0_exports_poison((uint64_t*)e);
  uint64_t was = __atomic_load_n(&e->spare, __ATOMIC_ACQUIRE);
  while (!(was & CDEVICE_V0_CLOSED)) {
    if (__atomic_compare_exchange_n(&e->spare, &was, was - CDEVICE_V0_TAKEN, 0, __ATOMIC_RELEASE, __ATOMIC_ACQUIRE)) {
      return 1;
    }
  }
  return 0;
}

/* The trees that end with the owner are counted until its end: until then the release callback of a
 * producer may run. The order of refs makes the uses of all trees happen before the end; a tree that adds
 * to refs needs none, since its caller holds the owner. Kept exports may be another owner's after the end. */
void cdevice_v0_exports_give_back(struct cdevice_v0_block* block) {
  struct cdevice_v0_exports* e = block->exports;
  uint64_t handle = e->handle;
  int last = 0;
  if (block != spare_of(e)) {
    free(block);
    last = __atomic_fetch_sub(&e->refs, 1, __ATOMIC_ACQ_REL) == 1;
  } else if (!give_back(e)) {
    last = __atomic_fetch_sub(&e->refs, 1, __ATOMIC_ACQ_REL) == 1;
  }
  if (last && !cdevice_v0_forked()) cdevice_v0_go_release(handle & ~CDEVICE_V0_KEPT); /* in a child, it names a copy */
  cdevice_v0_exports_left((uint64_t*)e, last && !(handle & CDEVICE_V0_KEPT));
}

void cdevice_v0_exports_left(uint64_t* exports, int free_them) {
  if (free_them) cdevice_v0_exports_free(exports);
  cdevice_v0_count(CDEVICE_V0_TREES, -1);
}
