#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "foreign.h"

static int on_thread(void* (*run)(void*), void* argument) {
  pthread_t thread;
  int err = pthread_create(&thread, NULL, run, argument);
  return err != 0 ? err : pthread_join(thread, NULL);
}

static void* release_one(void* a) {
  struct ArrowArray* array = a;
  if (array->release != NULL) array->release(array); /* NULL: a child that was moved out */
  return NULL;
}

static void move(struct ArrowArray* from, struct ArrowArray* to) {
  *to = *from;
  from->release = NULL;
}

static int release_moved(struct ArrowArray* a) {
  struct ArrowArray* other = malloc(sizeof *other);
  if (other == NULL) return ENOMEM;
  move(a, other);
  other->release(other);
  free(other);
  return 0;
}

static void release_twice(struct ArrowArray* a) {
  void (*release)(struct ArrowArray*) = a->release;
  release(a);
  release(a);
}

static void release_children_first(struct ArrowArray* a) {
  for (int64_t i = 0; i < a->n_children; i++) {
    if (a->children[i]->release != NULL) a->children[i]->release(a->children[i]);
  }
  a->release(a);
}

static int release_apart(struct ArrowArray* a, int threads) {
  int64_t n = a->n_children + 1;
  struct ArrowArray* all = calloc((size_t)n, sizeof *all);
  pthread_t* ids = calloc((size_t)n, sizeof *ids);
  int err = all == NULL || ids == NULL ? ENOMEM : 0;
  if (err == 0) {
    for (int64_t i = 1; i < n; i++) move(a->children[i - 1], &all[i]);
    move(a, &all[0]);
    int64_t started = 0;
    while (threads && started < n && pthread_create(&ids[started], NULL, release_one, &all[started]) == 0) started++;
    if (started == 0 && n > 0) {
      release_one(&all[0]);
      for (int64_t i = n; i-- > 1;) release_one(&all[i]);
    } else {
      for (int64_t i = started; i < n; i++) release_one(&all[i]);
    }
    for (int64_t i = 0; i < started; i++) pthread_join(ids[i], NULL);
  }
  free(all);
  free(ids);
  return err;
}

int foreign_release(struct ArrowArray* a, int way) {
  switch (way) {
    case FOREIGN_THREAD: return on_thread(release_one, a);
    case FOREIGN_MOVED: return release_moved(a);
    case FOREIGN_TWICE: release_twice(a); return 0;
    case FOREIGN_CHILDREN_FIRST: release_children_first(a); return 0;
    case FOREIGN_CHILDREN_LAST: return release_apart(a, 0);
    case FOREIGN_THREADS: return release_apart(a, 1);
    default: a->release(a); return 0;
  }
}

uintptr_t foreign_event(const void* sync_event) { return sync_event == NULL ? 0 : *(const uintptr_t*)sync_event; }

struct sum {
  const unsigned char* p;
  size_t size;
  uint64_t result;
};

static void* run_sum(void* a) {
  struct sum* s = a;
  for (size_t i = 0; i < s->size; i++) s->result += s->p[i];
  return NULL;
}

uint64_t foreign_sum_on_thread(const void* p, size_t size) {
  struct sum s = {p, size, 0};
  on_thread(run_sum, &s);
  return s.result;
}

/* Calls of a stream's callbacks. */

enum call { GET_SCHEMA, GET_NEXT, RELEASE };

struct stream_call {
  enum call what;
  struct ArrowDeviceArrayStream* device;
  struct ArrowArrayStream* plain; /* unless device is set */
  void* out;
  char** text;
  int code;
};

static int call_device(struct stream_call* c) {
  struct ArrowDeviceArrayStream* s = c->device;
  switch (c->what) {
    case GET_SCHEMA: return s->get_schema(s, c->out);
    case GET_NEXT: return s->get_next(s, c->out);
    default: s->release(s); return 0;
  }
}

static int call_plain(struct stream_call* c) {
  struct ArrowArrayStream* s = c->plain;
  switch (c->what) {
    case GET_SCHEMA: return s->get_schema(s, c->out);
    case GET_NEXT: return s->get_next(s, c->out);
    default: s->release(s); return 0;
  }
}

static void* run_call(void* a) {
  struct stream_call* c = a;
  c->code = c->device != NULL ? call_device(c) : call_plain(c);
  if (c->code == 0) return NULL;
  const char* text = c->device != NULL ? c->device->get_last_error(c->device) : c->plain->get_last_error(c->plain);
  *c->text = text == NULL ? NULL : strdup(text);
  return NULL;
}

static int call(struct stream_call c, int thread) {
  if (c.text != NULL) *c.text = NULL;
  int err = 0;
  if (thread) {
    err = on_thread(run_call, &c);
  } else {
    run_call(&c);
  }
  return err != 0 ? err : c.code;
}

int foreign_get_schema(struct ArrowDeviceArrayStream* s, struct ArrowSchema* out, int thread, char** text) {
  return call((struct stream_call){GET_SCHEMA, s, NULL, out, text, 0}, thread);
}

int foreign_get_schema_plain(struct ArrowArrayStream* s, struct ArrowSchema* out, int thread, char** text) {
  return call((struct stream_call){GET_SCHEMA, NULL, s, out, text, 0}, thread);
}

int foreign_get_next(struct ArrowDeviceArrayStream* s, struct ArrowDeviceArray* out, int thread, char** text) {
  return call((struct stream_call){GET_NEXT, s, NULL, out, text, 0}, thread);
}

int foreign_get_next_plain(struct ArrowArrayStream* s, struct ArrowArray* out, int thread, char** text) {
  return call((struct stream_call){GET_NEXT, NULL, s, out, text, 0}, thread);
}

void foreign_release_stream(struct ArrowDeviceArrayStream* s, int thread) {
  call((struct stream_call){RELEASE, s, NULL, NULL, NULL, 0}, thread);
}

void foreign_release_stream_plain(struct ArrowArrayStream* s, int thread) {
  call((struct stream_call){RELEASE, NULL, s, NULL, NULL, 0}, thread);
}

void foreign_take_part(struct ArrowArray* a, const int64_t* path, int64_t n, struct ArrowArray* out) {
  for (int64_t i = 0; i < n; i++) a = a->dictionary != NULL ? a->dictionary : a->children[path[i]];
  move(a, out);
}

int64_t foreign_number(const struct ArrowArray* a) {
  const struct ArrowArray* column = a->children[0];
  return ((const int64_t*)column->buffers[1])[column->offset];
}
