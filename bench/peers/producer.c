#include "producer.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static void measure(const struct ArrowArray* a, int64_t* nodes, int64_t* pointers) {
  *pointers += a->n_buffers + a->n_children;
  for (int64_t i = 0; i < a->n_children; i++) {
    ++*nodes;
    measure(a->children[i], nodes, pointers);
  }
  if (a->dictionary != NULL) {
    ++*nodes;
    measure(a->dictionary, nodes, pointers);
  }
}

static void release_child(struct ArrowArray* a) {
  for (int64_t i = 0; i < a->n_children; i++) {
    if (a->children[i]->release != NULL) a->children[i]->release(a->children[i]);
  }
  if (a->dictionary != NULL && a->dictionary->release != NULL) a->dictionary->release(a->dictionary);
  a->release = NULL;
}

/* Space for nodes and for pointers. */
struct space {
  struct ArrowArray* node;
  const void** pointer;
};

static void copy(const struct ArrowArray* from, struct ArrowArray* to, struct space* space) {
  *to = *from;
  to->release = release_child;
  to->private_data = NULL;
  to->buffers = space->pointer;
  space->pointer += from->n_buffers;
  memcpy(to->buffers, from->buffers, from->n_buffers * sizeof(void*));
  to->children = (struct ArrowArray**)space->pointer;
  space->pointer += from->n_children;
  struct ArrowArray* children = space->node;
  space->node += from->n_children;
  for (int64_t i = 0; i < from->n_children; i++) {
    to->children[i] = &children[i];
    copy(from->children[i], &children[i], space);
  }
  if (from->dictionary != NULL) {
    to->dictionary = space->node++;
    copy(from->dictionary, to->dictionary, space);
  }
}

/* The nodes come back: those that the importer released are live again. */
static void release_given(struct ArrowArray* a) {
  struct producer* p = a->private_data;
  for (int64_t i = 0; i < p->n_nodes; i++) p->nodes[i].release = release_child;
  a->release = NULL;
}

static void give(struct bench_producer* p, struct ArrowDeviceArray* out) { *out = ((struct producer*)p)->next; }

static size_t size_of(int64_t nodes, int64_t pointers) {
  return nodes * sizeof(struct ArrowArray) + pointers * sizeof(void*);
}

/* processors fetch cache lines in pairs */
#define APART 128

/* Zeroed memory that shares no cache line: that of two producers, on two threads. */
static void* apart(size_t size) {
  size = (size + APART) / APART * APART;
  void* at = aligned_alloc(APART, size);
  if (at != NULL) memset(at, 0, size);
  return at;
}

struct producer* producer_new(struct ArrowDeviceArray* source) {
  struct producer* p = apart(sizeof *p);
  if (p == NULL) return NULL;
  int64_t pointers = 0;
  measure(&source->array, &p->n_nodes, &pointers);
  p->block = apart(size_of(p->n_nodes, pointers));
  if (p->block == NULL) {
    free(p);
    return NULL;
  }
  p->base.give = give;
  p->source = *source;
  source->array.release = NULL;
  p->nodes = p->block;
  p->next = p->source;
  struct space space = {p->nodes, (const void**)(p->nodes + p->n_nodes)};
  copy(&p->source.array, &p->next.array, &space);
  p->next.array.release = release_given;
  p->next.array.private_data = p;
  return p;
}

void producer_free(struct producer* p) {
  p->source.array.release(&p->source.array);
  free(p->block);
  free(p);
}

static void release_floor(struct ArrowArray* a) {
  void* block = a->private_data;
  release_child(a);
  free(block);
}

int floor_run(const struct producer* p, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    int64_t nodes = 0, pointers = 0;
    measure(&p->source.array, &nodes, &pointers);
    char* block = malloc(size_of(nodes, pointers));
    if (block == NULL) return ENOMEM;
    struct space space = {(struct ArrowArray*)block, (const void**)(block + nodes * sizeof(struct ArrowArray))};
    struct ArrowDeviceArray out = p->source;
    copy(&p->source.array, &out.array, &space);
    out.array.release = release_floor;
    out.array.private_data = block;
    /* As a consumer in another library sees it: not to be optimised away. */
    __asm__ volatile("" : : "r"(&out) : "memory");
    out.array.release(&out.array);
  }
  return 0;
}

int64_t allocated(void) {
  struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

void release_one(uint64_t* array) {
  struct ArrowArray* a = (struct ArrowArray*)array;
  a->release(a);
}

void release_all(struct ArrowDeviceArray* all, int64_t n) {
  for (int64_t i = 0; i < n; i++) all[i].array.release(&all[i].array);
}
