/* The machine itself: its lock, its threads, its clock. */
#include "sim.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sim sim = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .go = PTHREAD_COND_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER,
    .untouched = PTHREAD_COND_INITIALIZER};

static pthread_key_t thread_key;

void sim_lock(void) { pthread_mutex_lock(&sim.lock); }
void sim_unlock(void) { pthread_mutex_unlock(&sim.lock); }

/* A thread that ends leaves its default streams to finish their work. */
static void thread_end(void *data) {
  struct thread *t = data;
  sim_lock();
  for (struct stream *s = t->streams, *next; s; s = next) {
    next = s->next_own;
    stream_close(s);
    object_unref(&s->object);
  }
  while (t->depth) object_unref(&t->stack[--t->depth]->object);
  sim_unlock();
  free(t->stack);
  free(t);
}

/* A child has the memory and the handles of its parent, and none of its workers: as
 * with a real driver, nothing works there that was initialised before. */
static void in_child(void) {
  sim.forked = sim.initialised;
  sim_unlock();
}

__attribute__((constructor)) static void load(void) {
  sim.page = (size_t)sysconf(_SC_PAGESIZE);
  if (pthread_atfork(sim_lock, sim_unlock, in_child)) abort();
  if (pthread_key_create(&thread_key, thread_end)) abort();
}

struct thread *self(void) {
  struct thread *t = pthread_getspecific(thread_key);
  if (!t) {
    t = fresh(sizeof *t);
    pthread_setspecific(thread_key, t);
  }
  return t;
}

static void *sure(void *memory) {
  if (memory) return memory;
  fprintf(stderr, "cudasim: the process is out of memory\n");
  abort();
}

void *fresh(size_t size) { return sure(calloc(1, size)); }

void *grow(void *list, int count, int *room, size_t size) {
  if (count < *room) return list;
  *room = *room ? 2 * *room : 8;
  return sure(realloc(list, (size_t)*room * size));
}

uint64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void violation(const char *format, ...) {
  const uint64_t room = sizeof sim.violations / sizeof *sim.violations;
  if (sim.violation_count++ >= room) return;
  va_list args;
  va_start(args, format);
  if (vasprintf(&sim.violations[sim.violation_count - 1], format, args) < 0) abort();
  va_end(args);
}
