#include "bridge.h"
#include "fork.h"

#include <stdlib.h>

const uint64_t cdevice_v0_zeros[8] __attribute__((aligned(64)));

/* How many blocks of schemas and other objects C has freed, in parts: a cache line that all threads change
 * would cost more than the rest of a release. A thread selects its part as package live does, by the address of its
 * stack. */
#define PART_BITS 6

static struct {
  int64_t freed;
  char apart[120]; /* processors fetch cache lines in pairs */
} parts[1 << PART_BITS] __attribute__((aligned(128)));

int64_t cdevice_v0_blocks_freed(void) {
  int64_t n = 0;
  for (int i = 0; i < 1 << PART_BITS; i++) n += __atomic_load_n(&parts[i].freed, __ATOMIC_RELAXED);
  return n;
}

static void free_counted(struct cdevice_v0_block* block) {
  uint64_t stack = (uintptr_t)__builtin_frame_address(0) >> 11;
  free(block);
  __atomic_fetch_add(&parts[stack * 0x9E3779B97F4A7C15 >> (64 - PART_BITS)].freed, 1, __ATOMIC_RELAXED);
}

struct cdevice_v0_block* cdevice_v0_block_new(size_t size) { return malloc(size); }

void cdevice_v0_block_free(uint64_t* block) { free(block); }

void cdevice_v0_block_end(struct cdevice_v0_block* block) { free_counted(block); }

/* Drops n structs from the block, and reports whether they were the last. If the caller has all that are left, no
 * other thread can drop one, and none of them needs a new count. The order of both makes every
 * other thread's last use of the block happen before its end. */
static int drop(struct cdevice_v0_block* block, int64_t n) {
  if (__atomic_load_n(&block->live, __ATOMIC_ACQUIRE) == n) return 1;
  return __atomic_fetch_sub(&block->live, n, __ATOMIC_ACQ_REL) == n;
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
  if (!drop(block, mark_array(array, block))) return;
  uint64_t handle = block->handle;
  free(block);
  if (cdevice_v0_forked()) return; /* the handle names a copy that ends with the process */
  cdevice_v0_go_export_ended(handle);
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
  if (!drop(block, mark_schema(schema, block))) return;
  uint64_t handle = block->handle;
  free_counted(block);
  if (handle != 0 && !cdevice_v0_forked()) cdevice_v0_go_release(handle);
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
