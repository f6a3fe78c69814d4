#include "bridge.h"
#include "counts.h"
#include "exports.h"
#include "fork.h"

#include <stdlib.h>

const uint64_t cdevice_v0_zeros[8] __attribute__((aligned(64)));

struct cdevice_v0_block* cdevice_v0_block_new(size_t size, int kind) {
  struct cdevice_v0_block* block = malloc(size);
  if (block == NULL) return NULL;
  block->exports = NULL;
  block->handle = cdevice_v0_count(kind, 1);
  return block;
}

void cdevice_v0_tree_free(uint64_t* block) {
  free(block);
  cdevice_v0_count(CDEVICE_V0_TREES, -1);
}

void cdevice_v0_block_free(uint64_t* block) { free(block); }

/* Ends a block whose structs are all released. */
static void end(struct cdevice_v0_block* block) {
  if (block->exports != NULL) {
    cdevice_v0_exports_give_back(block);
    return;
  }
  uint64_t handle = block->handle;
  if (!(handle & CDEVICE_V0_KEPT)) free(block);
  int counted = handle != 0 && !(handle & CDEVICE_V0_UNCOUNTED);
  if (!counted) cdevice_v0_count(CDEVICE_V0_OTHERS, -1);
  if (handle == 0 || cdevice_v0_forked()) return; /* what it names is a copy that ends with the process */
  /* It may use a kept block again: the lock of the handle makes the uses until here happen before that. */
  cdevice_v0_go_release(handle & ~(CDEVICE_V0_UNCOUNTED | CDEVICE_V0_KEPT));
  if (counted) cdevice_v0_count(CDEVICE_V0_TREES, -1); /* last: until here the release callback of a producer may run */
}

/* Drops n structs from the block; the last one ends it. If the caller has all that are left, no
 * other thread can drop one, and none of them needs a new count. The order of both makes every
 * other thread's last use of the block happen before its end. */
static void drop(struct cdevice_v0_block* block, int64_t n) {
  if (__atomic_load_n(&block->live, __ATOMIC_ACQUIRE) != n &&
      __atomic_fetch_sub(&block->live, n, __ATOMIC_ACQ_REL) != n) {
    return;
  }
  end(block);
}

/* Marks the tree below a released and returns how many structs of the block
 * that were. A struct that a consumer moved out of the tree has a NULL release
 * and stays alive; its children went with it. */
static int64_t mark_array(struct ArrowArray* a, const struct cdevice_v0_block* block);

static inline int64_t mark_array_member(struct ArrowArray* a, const struct cdevice_v0_block* block) {
  if (a == NULL || a->release == NULL) return 0;
  if (a->release == cdevice_v0_release_array && a->private_data == block) {
    return mark_array(a, block);
  }
  a->release(a);
  return 0;
}

static int64_t mark_array(struct ArrowArray* a, const struct cdevice_v0_block* block) {
  int64_t n = 1;
  for (int64_t i = 0; i < a->n_children; i++) n += mark_array_member(a->children[i], block);
  if (a->dictionary != NULL) n += mark_array_member(a->dictionary, block);
  a->release = NULL;
  return n;
}

void cdevice_v0_release_array(struct ArrowArray* array) {
  if (array->release == NULL) return;
  struct cdevice_v0_block* block = array->private_data;
  drop(block, mark_array(array, block));
}

static int64_t mark_schema(struct ArrowSchema* s, const struct cdevice_v0_block* block);

static inline int64_t mark_schema_member(struct ArrowSchema* s, const struct cdevice_v0_block* block) {
  if (s == NULL || s->release == NULL) return 0;
  if (s->release == cdevice_v0_release_schema && s->private_data == block) {
    return mark_schema(s, block);
  }
  s->release(s);
  return 0;
}

static int64_t mark_schema(struct ArrowSchema* s, const struct cdevice_v0_block* block) {
  int64_t n = 1;
  for (int64_t i = 0; i < s->n_children; i++) n += mark_schema_member(s->children[i], block);
  if (s->dictionary != NULL) n += mark_schema_member(s->dictionary, block);
  s->release = NULL;
  return n;
}

void cdevice_v0_release_schema(struct ArrowSchema* schema) {
  if (schema->release == NULL) return;
  struct cdevice_v0_block* block = schema->private_data;
  drop(block, mark_schema(schema, block));
}

void cdevice_v0_call_array_release(uint64_t* array) {
  struct ArrowArray* a = (struct ArrowArray*)array;
  a->release(a);
}

void cdevice_v0_release_moved(const uint64_t* array) {
  struct ArrowArray a = *(const struct ArrowArray*)array;
  a.release(&a);
}

void cdevice_v0_call_schema_release(uint64_t* schema) {
  struct ArrowSchema* s = (struct ArrowSchema*)schema;
  s->release(s);
}
