/* Handles. */
#include "sim.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Handles are addresses that cannot be read, and none is used twice. */
enum { STEP = 64, BUCKETS = 4096, LEAST = 4 << 10, FIRST = 256 << 10, MOST = 64 << 20 };

static struct range {
  void *base;
  size_t size;
} *ranges; /* reserved for handles; the last is in use */
static int range_count, range_room;

static struct object *buckets[BUCKETS];
static uintptr_t next_handle, end_of_handles;

static struct object **bucket(uintptr_t handle) { return &buckets[handle / STEP % BUCKETS]; }

/* Twice as much each time, or as much as the system gives. */
static bool reserve(void) {
  size_t size = range_count ? 2 * ranges[range_count - 1].size : FIRST;
  for (size = size > MOST ? MOST : size; size >= LEAST; size /= 2) {
    void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) continue;
    ranges = grow(ranges, range_count, &range_room, sizeof *ranges);
    ranges[range_count++] = (struct range){p, size};
    next_handle = (uintptr_t)p;
    end_of_handles = next_handle + size;
    return true;
  }
  return refuse_address(LEAST);
}

void objects_close(void) {
  for (int i = 0; i < range_count; i++) munmap(ranges[i].base, ranges[i].size);
  free(ranges);
}

CUresult object_add(struct object *object, enum kind kind) {
  if (sim.ended) return CUDA_ERROR_DEINITIALIZED;
  if (next_handle == end_of_handles && !reserve()) return CUDA_ERROR_OUT_OF_MEMORY;
  struct object **head = bucket(next_handle);
  *object = (struct object){
      .kind = kind, .refs = 1, .handle = next_handle, .call = self()->call, .maker = caller_of_call(), .next = *head};
  *head = object;
  next_handle += STEP;
  return CUDA_SUCCESS;
}

static void unlist(struct object *object) {
  struct object **o = bucket(object->handle);
  while (*o != object) o = &(*o)->next;
  *o = object->next;
}

/* The object takes over the handle of a destroyed one, and is found before it from now on. */
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

void object_die(struct object *object) {
  object->dead = true;
  ledger_remove(&object->entry);
}

void object_keep(struct object *object, bool kept) { ledger_keep(&object->entry, kept); }

void object_unref(struct object *object) {
  if (--object->refs) return;
  ledger_remove(&object->entry);
  unlist(object);
  switch (object->kind) {
    case CONTEXT: context_free((struct context *)object); break;
    case STREAM: stream_free((struct stream *)object); break;
    case EVENT: event_free((struct event *)object); break;
    case POOL: pool_free((struct pool *)object); break;
    case GRAPH: graph_free((struct graph *)object); break;
    case EXEC: exec_free((struct exec *)object); break;
    case NODE: node_free((struct node *)object); break;
  }
}
