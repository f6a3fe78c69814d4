#include "bridge.h"
#include "fork.h"

#include <stdlib.h>

/* Go: ends the handle. Called at most once per block, on the thread that
 * released the last struct. */
extern void cdevice_v0_go_release(uint64_t handle);

const uint64_t cdevice_v0_zeros[8] __attribute__((aligned(64)));

/* Counts, in parts: each thread changes its own, which may be below zero, and the sum is
 * the count. A cache line that all threads change would cost more than the rest of an
 * export. Threads beyond the last part share the first ones. */
#define PARTS 64

static struct part {
  int64_t blocks;
  int64_t trees;
  char apart[128 - 2 * sizeof(int64_t)]; /* processors fetch cache lines in pairs */
} parts[PARTS] __attribute__((aligned(128)));

static uint64_t threads;
static _Thread_local struct part* own;

static struct part* own_part(void) {
  if (own == NULL) own = &parts[__atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) % PARTS];
  return own;
}

static void add(int64_t* count, int64_t n) { __atomic_fetch_add(count, n, __ATOMIC_RELAXED); }

struct cdevice_v0_block* cdevice_v0_block_new(size_t size, int64_t trees) {
  struct cdevice_v0_block* block = malloc(size);
  if (block == NULL) return NULL;
  struct part* part = own_part();
  add(&part->blocks, 1);
  add(&part->trees, trees);
  block->handle = (uint64_t)(part - parts);
  return block;
}

static void block_free(struct cdevice_v0_block* block) {
  free(block);
  add(&own_part()->blocks, -1);
}

int64_t cdevice_v0_block_count(void) {
  int64_t n = 0;
  for (int i = 0; i < PARTS; i++) n += __atomic_load_n(&parts[i].blocks, __ATOMIC_RELAXED);
  return n;
}

int64_t cdevice_v0_tree_count(void) {
  int64_t n = 0;
  for (int i = 0; i < PARTS; i++) n += __atomic_load_n(&parts[i].trees, __ATOMIC_RELAXED);
  return n;
}

/* Drops n structs from the block; the last one frees it. The acquire-release
 * order makes every other thread's last use of the block happen before free. */
static void drop(struct cdevice_v0_block* block, int64_t n) {
  if (__atomic_fetch_sub(&block->live, n, __ATOMIC_ACQ_REL) != n) return;
  uint64_t handle = block->handle;
  block_free(block);
  if (handle == 0 || cdevice_v0_forked()) return; /* what it names is a copy that ends with the process */
  cdevice_v0_go_release(handle & ~CDEVICE_V0_UNCOUNTED);
  if (handle & CDEVICE_V0_UNCOUNTED) return;
  add(&own_part()->trees, -1); /* last: until here the release callback of a producer may run */
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
