/* Handles. */
#include "sim.h"

#include <sys/mman.h>

/* Handles are addresses that nobody can read, and none is given out twice. */
enum { STEP = 64, BUCKETS = 4096 };
static const size_t RESERVED = (size_t)64 << 30;

static struct object *buckets[BUCKETS];
static uintptr_t next_handle, end_of_handles;

static struct object **bucket(uintptr_t handle) { return &buckets[handle / STEP % BUCKETS]; }

static bool reserve(void) {
  for (size_t size = RESERVED; size >= 1 << 20; size /= 2) {
    void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) continue;
    next_handle = (uintptr_t)p;
    end_of_handles = next_handle + size;
    return true;
  }
  return false;
}

CUresult object_add(struct object *object, enum kind kind) {
  if (next_handle == end_of_handles && !reserve()) return CUDA_ERROR_OUT_OF_MEMORY;
  struct object **head = bucket(next_handle);
  *object =
      (struct object){.kind = kind, .refs = 1, .handle = next_handle, .call = self()->call, .next = *head};
  *head = object;
  next_handle += STEP;
  return CUDA_SUCCESS;
}

static void unlist(struct object *object) {
  struct object **o = bucket(object->handle);
  while (*o != object) o = &(*o)->next;
  *o = object->next;
}

/* The object is found under the handle that a dead one has had, from now on before it. */
void object_rename(struct object *object, uintptr_t handle) {
  unlist(object);
  struct object **head = bucket(handle);
  object->handle = handle;
  object->next = *head;
  *head = object;
}

void *object_find_dying(const void *handle, enum kind kind) {
  struct object *o = *bucket((uintptr_t)handle);
  while (o && (o->handle != (uintptr_t)handle || o->kind != kind)) o = o->next;
  return o;
}

void *object_find(const void *handle, enum kind kind) {
  struct object *o = object_find_dying(handle, kind);
  return o && !o->dead ? o : NULL;
}

void object_each(enum kind kind, void (*visit)(struct object *, void *), void *data) {
  for (int b = 0; b < BUCKETS; b++)
    for (struct object *o = buckets[b], *next; o; o = next) {
      next = o->next;
      if (o->kind == kind && !o->dead) visit(o, data);
    }
}

void object_unref(struct object *object) {
  if (--object->refs) return;
  unlist(object);
  switch (object->kind) {
    case CONTEXT: context_free((struct context *)object); break;
    case STREAM: stream_free((struct stream *)object); break;
    case EVENT: event_free((struct event *)object); break;
    case POOL: pool_free((struct pool *)object); break;
  }
}
