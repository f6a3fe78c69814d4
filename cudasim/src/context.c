/* Contexts, and which one is current. */
#include "sim.h"

#include <stdlib.h>

static const unsigned api_version = 3020;

CUresult context_new(int device, unsigned flags, bool primary, struct context **out) {
  static uint64_t ids;
  struct context *c = fresh(sizeof *c);
  CUresult r = object_add(&c->object, CONTEXT);
  if (r) {
    free(c);
    return r;
  }
  c->id = ++ids;
  c->device = device;
  c->flags = flags;
  c->primary = primary;
  r = stream_new(c, LEGACY, 0, &c->legacy);
  if (r) {
    object_unref(&c->object);
    return r;
  }
  c->next = sim.contexts;
  sim.contexts = c;
  ledger_object(&c->object);
  *out = c;
  return CUDA_SUCCESS;
}

void context_free(struct context *c) {
  functions_end(c);
  mark_drop(c->barrier_mark);
  clock_drop(c->retired);
  clock_drop(c->retired_blocking);
  clock_drop(c->retired_work);
  free(c);
}

static void unlist(struct context *context) {
  struct context **c = &sim.contexts;
  while (*c != context) c = &(*c)->next;
  *c = context->next;
}

/* Everything that was made in the context goes with it. */
struct event_list {
  const struct context *context;
  int count, room;
  struct event **at;
};

static void collect_event(struct object *object, void *data) {
  struct event_list *list = data;
  if (((struct event *)object)->context != list->context) return;
  list->at = grow(list->at, list->count, &list->room, sizeof *list->at);
  list->at[list->count++] = (struct event *)object;
}

static void destroy_events(const struct context *c) {
  struct event_list list = {.context = c};
  object_each(EVENT, collect_event, &list);
  for (int i = 0; i < list.count; i++) {
    object_die(&list.at[i]->object);
    object_unref(&list.at[i]->object);
  }
  free(list.at);
}

static void destroy_blocks(const struct context *c) {
  for (size_t i = sim.block_count; i-- > 0;) {
    struct block *b = sim.blocks[i];
    if (b->context != c) continue;
    block_remove(b);
    block_kill(b);
  }
}

static void wait_for_all(struct context *c) {
  struct points points = {0};
  struct marks marks = {0};
  points_add_context(&points, c);
  marks_of_context(&marks, c);
  points_wait(&points);
  points_free(&points);
  host_learns_context(&marks, c->id);
}

/* No more work can be queued; queued work completes first. */
void context_kill(struct context *c) {
  object_die(&c->object);
  wait_for_all(c);
  point_set(&c->barrier, NULL, 0);
  destroy_events(c);
  destroy_blocks(c);
  for (struct stream *s = c->streams, *next; s; s = next) {
    next = s->next;
    stream_close(s);
  }
  unlist(c);
  object_unref(&c->object);
}

/* With primary=stable, a handle that was made current before the primary context was
 * released is that of the one which is active now. */
static struct context *renewed(struct context *c) {
  struct context *now = sim.devices[c->device].primary;
  if (!sim.options.stable_primary || !c->primary || !c->object.dead || !now) return c;
  now->object.refs++;
  object_unref(&c->object);
  return now;
}

CUresult current_context(struct context **out) {
  struct thread *t = self();
  if (!t->depth) return CUDA_ERROR_INVALID_CONTEXT;
  *out = t->stack[t->depth - 1] = renewed(t->stack[t->depth - 1]);
  return (*out)->object.dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : (*out)->fault;
}

static void push(struct context *c) {
  struct thread *t = self();
  t->stack = grow(t->stack, t->depth, &t->room, sizeof *t->stack);
  t->stack[t->depth++] = c;
  c->object.refs++;
}

static CUcontext pop(void) {
  struct thread *t = self();
  struct object *o = &t->stack[--t->depth]->object;
  CUcontext handle = (CUcontext)o->handle;
  object_unref(o);
  return handle;
}

CUresult context_push(CUcontext context) {
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  struct context *c = object_find(context, CONTEXT);
  if (!c) return CUDA_ERROR_INVALID_CONTEXT;
  push(c);
  return CUDA_SUCCESS;
}

CUresult context_pop(CUcontext *context) {
  if (!self()->depth) return CUDA_ERROR_INVALID_CONTEXT;
  CUcontext handle = pop();
  if (context) *context = handle;
  return CUDA_SUCCESS;
}

CUresult context_set_current(CUcontext context) {
  struct context *c = object_find(context, CONTEXT);
  if (context && !c) return CUDA_ERROR_INVALID_CONTEXT;
  if (self()->depth) pop();
  if (c) push(c);
  return CUDA_SUCCESS;
}

CUresult context_get_current(CUcontext *context) {
  const struct thread *t = self();
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = t->depth ? (CUcontext)t->stack[t->depth - 1]->object.handle : NULL;
  return CUDA_SUCCESS;
}

CUresult context_check_flags(unsigned flags) {
  unsigned schedule = flags & CU_CTX_SCHED_MASK;
  bool valid = !(flags & ~(unsigned)CU_CTX_FLAGS_MASK) && (schedule & (schedule - 1)) == 0;
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult context_create(CUcontext *context, unsigned flags, CUdevice device) {
  if (!context || context_check_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  struct context *c;
  CUresult r = context_new(device, flags, false, &c);
  if (r) return r;
  c->attached = 1;
  push(c);
  *context = (CUcontext)c->object.handle;
  return CUDA_SUCCESS;
}

CUresult context_create_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device) {
  return affinity || count ? CUDA_ERROR_NOT_SUPPORTED : context_create(context, flags, device);
}

CUresult context_create_v4(CUcontext *context, void *params, unsigned flags, CUdevice device) {
  return params ? CUDA_ERROR_NOT_SUPPORTED : context_create(context, flags, device);
}

CUresult context_attach(CUcontext *context, unsigned flags) {
  struct context *c;
  if (!context || flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = current_context(&c);
  if (r) return r;
  c->attached++;
  *context = (CUcontext)c->object.handle;
  return CUDA_SUCCESS;
}

/* Of the current context. A primary one is counted like any other, and is not destroyed. */
CUresult context_detach(CUcontext context) {
  struct context *c;
  CUresult r = current_context(&c);
  if (r) return r;
  if (c != object_find(context, CONTEXT) || !c->attached) return CUDA_ERROR_INVALID_CONTEXT;
  return --c->attached || c->primary ? CUDA_SUCCESS : context_destroy(context);
}

CUresult context_destroy(CUcontext context) {
  struct context *c = object_find(context, CONTEXT);
  if (!c || c->primary) return CUDA_ERROR_INVALID_CONTEXT;
  const struct thread *t = self();
  if (t->depth && t->stack[t->depth - 1] == c) pop();
  sim.synchronisations++;
  context_kill(c);
  return CUDA_SUCCESS;
}

CUresult context_device(CUdevice *device) {
  struct context *c;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = current_context(&c);
  if (!r) *device = c->device;
  return r;
}

/* Of the current context, if the handle is NULL. */
static CUresult find(CUcontext handle, struct context **out) {
  if (!handle) return current_context(out);
  *out = object_find(handle, CONTEXT);
  return *out ? (*out)->fault : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult context_device_of(CUdevice *device, CUcontext context) {
  struct context *c;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = find(context, &c);
  if (!r) *device = c->device;
  return r;
}

CUresult context_flags(unsigned *flags) {
  struct context *c;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = current_context(&c);
  if (!r) *flags = c->flags;
  return r;
}

CUresult context_api_version(CUcontext context, unsigned *version) {
  struct context *c;
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  if (!context ? current_context(&c) != CUDA_SUCCESS : !object_find(context, CONTEXT))
    return CUDA_ERROR_INVALID_CONTEXT;
  *version = api_version;
  return CUDA_SUCCESS;
}

/* Reading: a fault does not matter, as for the version, and a primary context that was released or
 * reset and is active again is another one, even if its handle is the same. */
CUresult context_id(CUcontext context, unsigned long long *id) {
  struct context *c;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  if (!context) {
    CUresult r = current_context(&c);
    if (r) return r;
  } else {
    c = object_find(context, CONTEXT);
    if (!c) return object_find_dying(context, CONTEXT) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  }
  *id = c->id;
  return CUDA_SUCCESS;
}

CUresult context_synchronize_of(CUcontext context) {
  struct context *c;
  CUresult r = find(context, &c);
  if (!r) r = capture_forbids_context(c);
  if (r) return r;
  sim.synchronisations++;
  c->object.refs++;
  wait_for_all(c);
  r = c->fault;
  object_unref(&c->object);
  return r;
}

CUresult context_synchronize(void) { return context_synchronize_of(NULL); }

CUresult context_priorities(int *least, int *greatest) {
  struct context *c;
  CUresult r = current_context(&c);
  if (r) return r;
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}

static CUresult peers(CUcontext handle, struct context **c, struct context **peer) {
  CUresult r = current_context(c);
  if (r) return r;
  *peer = object_find(handle, CONTEXT);
  if (!*peer || *peer == *c) return CUDA_ERROR_INVALID_CONTEXT;
  return CUDA_SUCCESS;
}

CUresult context_enable_peer(CUcontext handle, unsigned flags) {
  struct context *c, *peer;
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = peers(handle, &c, &peer);
  if (r) return r;
  if (!sim.options.peer || c->device == peer->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (c->peers >> peer->device & 1) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  c->peers |= 1u << peer->device;
  return CUDA_SUCCESS;
}

CUresult context_disable_peer(CUcontext handle) {
  struct context *c, *peer;
  CUresult r = peers(handle, &c, &peer);
  if (r) return r;
  if (!(c->peers >> peer->device & 1)) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  c->peers &= ~(1u << peer->device);
  return CUDA_SUCCESS;
}
