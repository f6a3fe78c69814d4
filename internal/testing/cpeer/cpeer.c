#include "cpeer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

void cpeer_count_array_release(struct ArrowArray* array) {
  __atomic_fetch_add((int64_t*)array->private_data, 1, __ATOMIC_RELAXED);
  array->release = NULL;
}

void cpeer_count_schema_release(struct ArrowSchema* schema) {
  __atomic_fetch_add((int64_t*)schema->private_data, 1, __ATOMIC_RELAXED);
  schema->release = NULL;
}

int cpeer_on_thread(void* (*run)(void*), void* argument) {
  pthread_t thread;
  int err = pthread_create(&thread, NULL, run, argument);
  return err != 0 ? err : pthread_join(thread, NULL);
}

static void* release_array(void* array) {
  ((struct ArrowArray*)array)->release(array);
  return NULL;
}

int cpeer_release_array_on_thread(struct ArrowArray* array) { return cpeer_on_thread(release_array, array); }

void cpeer_release_array_twice(struct ArrowArray* array) {
  void (*release)(struct ArrowArray*) = array->release;
  release(array);
  release(array);
}

void cpeer_release_schema_twice(struct ArrowSchema* schema) {
  void (*release)(struct ArrowSchema*) = schema->release;
  release(schema);
  release(schema);
}

struct call {
  int (*f)(void*, void*);
  void *a, *b;
  int result;
};

static void* run_call(void* p) {
  struct call* c = p;
  c->result = c->f(c->a, c->b);
  return NULL;
}

int cpeer_call_on_thread(int (*f)(void*, void*), void* a, void* b, int* result) {
  struct call c = {f, a, b, 0};
  int err = cpeer_on_thread(run_call, &c);
  *result = c.result;
  return err;
}

const void* cpeer_call_for_pointer(const void* (*f)(void*), void* a) { return f(a); }

void cpeer_look_at(const void** pointer) { (void)pointer; }

/* The floor: one malloc holds the structs below the root, their pointers and their buffers; release
 * marks the tree and frees it. Children moved out are not supported: this keeps the cost
 * minimal. */

static void measure(const struct cpeer_node* n, size_t* size) {
  *size += n->n_buffers * sizeof(void*) + n->n_children * (sizeof(struct ArrowArray) + sizeof(void*));
  for (int64_t i = 0; i < n->n_children; i++) measure(&n->children[i], size);
}

static void release_floor_child(struct ArrowArray* a) {
  for (int64_t i = 0; i < a->n_children; i++) {
    struct ArrowArray* c = a->children[i];
    if (c->release != NULL) c->release(c);
  }
  a->release = NULL;
}

static void release_floor(struct ArrowArray* a) {
  void* block = a->private_data;
  release_floor_child(a);
  free(block);
}

static char* fill(const struct cpeer_node* n, struct ArrowArray* out, char* free_space) {
  out->length = n->length;
  out->null_count = n->null_count;
  out->offset = 0;
  out->n_buffers = n->n_buffers;
  out->n_children = n->n_children;
  out->dictionary = NULL;
  out->release = release_floor_child;
  out->private_data = NULL;
  out->buffers = (const void**)free_space;
  for (int64_t i = 0; i < n->n_buffers; i++) out->buffers[i] = n->buffers[i];
  free_space += n->n_buffers * sizeof(void*);
  out->children = NULL;
  if (n->n_children == 0) return free_space;
  struct ArrowArray* children = (struct ArrowArray*)free_space;
  free_space += n->n_children * sizeof(struct ArrowArray);
  out->children = (struct ArrowArray**)free_space;
  free_space += n->n_children * sizeof(void*);
  for (int64_t i = 0; i < n->n_children; i++) {
    out->children[i] = &children[i];
    free_space = fill(&n->children[i], &children[i], free_space);
  }
  return free_space;
}

int cpeer_floor_export(const struct cpeer_node* root, struct ArrowDeviceArray* out) {
  size_t size = 0;
  measure(root, &size);
  char* block = malloc(size);
  if (block == NULL) return ENOMEM;
  fill(root, &out->array, block);
  out->array.release = release_floor;
  out->array.private_data = block;
  out->device_id = -1;
  out->device_type = ARROW_DEVICE_CPU;
  out->sync_event = NULL;
  out->reserved[0] = out->reserved[1] = out->reserved[2] = 0;
  return 0;
}
