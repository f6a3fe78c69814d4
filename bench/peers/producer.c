#include "producer.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "apart.h"

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

void release_child(struct ArrowArray* a) {
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

/* Fills *out with one malloc. Returns 0 or ENOMEM. */
static int floor_export(const struct producer* p, struct ArrowDeviceArray* out) {
  int64_t nodes = 0, pointers = 0;
  measure(&p->source.array, &nodes, &pointers);
  char* block = malloc(size_of(nodes, pointers));
  if (block == NULL) return ENOMEM;
  struct space space = {(struct ArrowArray*)block, (const void**)(block + nodes * sizeof(struct ArrowArray))};
  *out = p->source;
  copy(&p->source.array, &out->array, &space);
  out->array.release = release_floor;
  out->array.private_data = block;
  return 0;
}

int floor_run(const struct producer* p, struct bench_consumer* consumer, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    struct ArrowDeviceArray out;
    if (floor_export(p, &out) != 0) return ENOMEM;
    consumer->take(consumer, &out.array);
  }
  return 0;
}

/* A stream of so many floors. */
struct floor_stream {
  const struct producer* p;
  int64_t left;
};

static int floor_next(struct ArrowDeviceArrayStream* stream, struct ArrowDeviceArray* out) {
  struct floor_stream* s = stream->private_data;
  if (s->left-- > 0) return floor_export(s->p, out);
  out->array.release = NULL;
  return 0;
}

static void release_schema(struct ArrowSchema* schema) { schema->release = NULL; }

static int floor_schema(struct ArrowDeviceArrayStream* stream, struct ArrowSchema* out) {
  (void)stream;
  *out = (struct ArrowSchema){.format = "+s", .name = "", .release = release_schema};
  return 0;
}

static void release_stream(struct ArrowDeviceArrayStream* stream) { stream->release = NULL; }

int64_t floor_stream(const struct producer* p, struct bench_consumer* consumer, int64_t n) {
  struct floor_stream s = {p, n};
  struct ArrowDeviceArrayStream stream = {
      .device_type = ARROW_DEVICE_CPU,
      .get_schema = floor_schema,
      .get_next = floor_next,
      .release = release_stream,
      .private_data = &s,
  };
  return consumer->read_device(consumer, &stream);
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
