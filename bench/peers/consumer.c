#include "consumer.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

struct consumer {
  int64_t capacity;
  struct ArrowArray* arrays;
  int elsewhere;
  pthread_t thread;
  sem_t given, done;
  int64_t n; /* to be released by the thread; 0 ends it */
};

static void release(struct consumer* c, int64_t n) {
  for (int64_t i = 0; i < n; i++) c->arrays[i].release(&c->arrays[i]);
}

static void wait_for(sem_t* s) {
  while (sem_wait(s) != 0) {
  }
}

static void* run(void* of) {
  struct consumer* c = of;
  for (;;) {
    wait_for(&c->given);
    if (c->n == 0) return NULL;
    release(c, c->n);
    sem_post(&c->done);
  }
}

static void give(struct consumer* c, int64_t n) {
  c->n = n;
  sem_post(&c->given);
}

void consumer_release(struct consumer* c, int64_t n) {
  if (!c->elsewhere) {
    release(c, n);
  } else if (n > 0) {
    give(c, n);
    wait_for(&c->done);
  }
}

struct consumer* consumer_new(int64_t capacity, int elsewhere) {
  struct consumer* c = calloc(1, sizeof *c);
  if (c == NULL) return NULL;
  c->capacity = capacity;
  c->elsewhere = elsewhere;
  c->arrays = calloc(capacity, sizeof *c->arrays);
  sem_init(&c->given, 0, 0);
  sem_init(&c->done, 0, 0);
  if (c->arrays != NULL && (!elsewhere || pthread_create(&c->thread, NULL, run, c) == 0)) return c;
  free(c->arrays);
  free(c);
  return NULL;
}

void consumer_free(struct consumer* c) {
  if (c->elsewhere) {
    give(c, 0);
    pthread_join(c->thread, NULL);
  }
  sem_destroy(&c->given);
  sem_destroy(&c->done);
  free(c->arrays);
  free(c);
}

struct ArrowArray* consumer_arrays(struct consumer* c) { return c->arrays; }

int64_t consumer_read(struct consumer* c, struct ArrowArrayStream* stream) {
  struct ArrowSchema schema;
  if (stream->get_schema(stream, &schema) != 0) return -1;
  schema.release(&schema);
  int64_t all = 0, held = 0;
  for (;;) {
    struct ArrowArray* next = &c->arrays[held];
    if (stream->get_next(stream, next) != 0) {
      all = -1;
      break;
    }
    if (next->release == NULL) break;
    all++;
    if (++held == c->capacity) {
      consumer_release(c, held);
      held = 0;
    }
  }
  consumer_release(c, held);
  stream->release(stream);
  return all;
}
