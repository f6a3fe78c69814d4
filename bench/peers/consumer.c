#include "consumer.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "apart.h"

/* A thread that releases arrays. */
struct releaser {
  pthread_t thread;
  sem_t given, done;
  struct ArrowDeviceArray* arrays;
  int64_t n; /* 0 ends it */
};

static void release(struct ArrowDeviceArray* arrays, int64_t n) {
  for (int64_t i = 0; i < n; i++) arrays[i].array.release(&arrays[i].array);
}

static void wait_for(sem_t* s) {
  while (sem_wait(s) != 0) {
  }
}

static void* run(void* of) {
  struct releaser* r = of;
  for (;;) {
    wait_for(&r->given);
    if (r->n == 0) return NULL;
    release(r->arrays, r->n);
    sem_post(&r->done);
  }
}

static void give(struct releaser* r, int64_t n) {
  r->n = n;
  sem_post(&r->given);
}

static struct releaser* releaser_new(struct ArrowDeviceArray* arrays) {
  struct releaser* r = apart(sizeof *r);
  if (r == NULL) return NULL;
  r->arrays = arrays;
  sem_init(&r->given, 0, 0);
  sem_init(&r->done, 0, 0);
  if (pthread_create(&r->thread, NULL, run, r) == 0) return r;
  free(r);
  return NULL;
}

static void releaser_free(struct releaser* r) {
  give(r, 0);
  pthread_join(r->thread, NULL);
  sem_destroy(&r->given);
  sem_destroy(&r->done);
  free(r);
}

void consumer_release(struct consumer* c, int64_t n) {
  if (c->elsewhere == NULL) {
    release(c->arrays, n);
  } else if (n > 0) {
    give(c->elsewhere, n);
    wait_for(&c->elsewhere->done);
  }
}

void consumer_flush(struct consumer* c) {
  consumer_release(c, c->held);
  c->held = 0;
}

static void take(struct bench_consumer* of, struct ArrowArray* array) {
  struct consumer* c = (struct consumer*)of;
  if (c->elsewhere == NULL) {
    array->release(array);
    return;
  }
  c->arrays[c->held++].array = *array;
  array->release = NULL;
  if (c->held == c->capacity) consumer_flush(c);
}

/* Both kinds of streams. */
typedef int next_function(void* stream, struct ArrowDeviceArray* out);

static int next_plain(void* of, struct ArrowDeviceArray* out) {
  struct ArrowArrayStream* stream = of;
  return stream->get_next(stream, &out->array);
}

static int next_device(void* of, struct ArrowDeviceArray* out) {
  struct ArrowDeviceArrayStream* stream = of;
  return stream->get_next(stream, out);
}

/* Takes all arrays of a stream. Returns how many there were, or -1. */
static int64_t take_all(struct consumer* c, next_function* next, void* stream) {
  struct ArrowDeviceArray out;
  int64_t n = 0;
  for (; next(stream, &out) == 0; n++) {
    if (out.array.release == NULL) {
      consumer_flush(c);
      return n;
    }
    take(&c->base, &out.array);
  }
  consumer_flush(c);
  return -1;
}

int64_t consumer_read(struct consumer* c, struct ArrowArrayStream* stream) {
  struct ArrowSchema schema;
  if (stream->get_schema(stream, &schema) != 0) return -1;
  schema.release(&schema);
  int64_t n = take_all(c, next_plain, stream);
  stream->release(stream);
  return n;
}

int64_t consumer_read_device(struct consumer* c, struct ArrowDeviceArrayStream* stream) {
  struct ArrowSchema schema;
  if (stream->get_schema(stream, &schema) != 0) return -1;
  schema.release(&schema);
  int64_t n = take_all(c, next_device, stream);
  stream->release(stream);
  return n;
}

/* The consumer of peers in other languages. */
static int64_t read_plain(struct bench_consumer* of, struct ArrowArrayStream* stream) {
  return consumer_read((struct consumer*)of, stream);
}

static int64_t read_device(struct bench_consumer* of, struct ArrowDeviceArrayStream* stream) {
  return consumer_read_device((struct consumer*)of, stream);
}

struct consumer* consumer_new(int64_t capacity, int elsewhere) {
  struct consumer* c = apart(sizeof *c);
  if (c == NULL) return NULL;
  c->base = (struct bench_consumer){take, read_plain, read_device};
  c->capacity = capacity;
  c->arrays = apart(capacity * sizeof *c->arrays);
  if (c->arrays != NULL && elsewhere) c->elsewhere = releaser_new(c->arrays);
  if (c->arrays != NULL && (c->elsewhere != NULL || !elsewhere)) return c;
  free(c->arrays);
  free(c);
  return NULL;
}

void consumer_free(struct consumer* c) {
  if (c->elsewhere != NULL) releaser_free(c->elsewhere);
  free(c->arrays);
  free(c);
}
