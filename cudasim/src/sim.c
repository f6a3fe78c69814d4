/* The machine itself: its lock, its threads, its clock. */
#include "sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sim sim = {.lock = PTHREAD_MUTEX_INITIALIZER,
                  .go = PTHREAD_COND_INITIALIZER,
                  .idle = PTHREAD_COND_INITIALIZER,
                  .untouched = PTHREAD_COND_INITIALIZER,
                  .ready = PTHREAD_COND_INITIALIZER,
                  .host = {.epoch = 1}};

static pthread_key_t thread_key;

void sim_lock(void) { pthread_mutex_lock(&sim.lock); }
void sim_unlock(void) { pthread_mutex_unlock(&sim.lock); }

void touch_begin(void) {
  sim.touching++;
  sim_unlock();
}

void touch_end(void) {
  sim_lock();
  sim.touching--;
  if (sim.ended) pthread_cond_broadcast(&sim.idle);
}

static bool unlist(const struct thread *thread) {
  for (struct thread **t = &sim.threads; *t; t = &(*t)->next)
    if (*t == thread) {
      *t = thread->next;
      return true;
    }
  return false;
}

static void thread_free(struct thread *t) {
  if (t->host) clock_drop(t->host->clock);
  free(t->host);
  free(t->caller);
  free(t->stack);
  free(t);
}

/* A thread that ends leaves its default streams to finish their work. */
static void thread_end(void *data) {
  struct thread *t = data;
  sim_lock();
  bool listed = unlist(t);
  for (struct stream *s = listed ? t->streams : NULL, *next; s; s = next) {
    next = s->next_own;
    stream_close(s);
    object_unref(&s->object);
  }
  if (listed) thread_ends(t);
  while (listed && t->depth) object_unref(&t->stack[--t->depth]->object);
  if (listed) thread_free(t); /* the lock guards the counts of the clocks, which streams share */
  sim_unlock();
}

/* The last call of a machine that was shut down gives back the key, of which a process
 * has a thousand: no call asks for its thread any more. */
void call_left(void) {
  static bool given;
  if (!sim.ended || sim.inside || sim.running || given) return;
  given = true;
  pthread_key_delete(thread_key);
  for (struct thread *t = sim.threads, *next; t; t = next) {
    next = t->next;
    thread_free(t);
  }
  sim.threads = NULL;
}

/* Waiting threads are woken, and find that all work is done or that the machine ends. */
static void end_streams(void) {
  for (struct context *c = sim.contexts; c; c = c->next) {
    c->fault = CUDA_ERROR_DEINITIALIZED;
    functions_wake(c);
    for (struct stream *s = c->streams, *next; s; s = next) {
      next = s->next;
      pthread_cond_broadcast(&s->changed);
      stream_close(s);
    }
  }
  pthread_cond_broadcast(&sim.go);
  pthread_cond_broadcast(&sim.idle);
  pthread_cond_broadcast(&sim.ready);
}

void cudasim_shut_down(void) {
  sim_lock();
  if (!sim.ended) {
    sim.ended = true;
    end_streams();
    while (sim.touching) pthread_cond_wait(&sim.idle, &sim.lock);
    arenas_close();
    objects_close();
    call_left();
  }
  sim_unlock();
}

/* A child has the memory and the handles of its parent, and none of its workers: as
 * with a real driver, nothing works there that was initialised before. */
static void in_child(void) {
  sim.forked = sim.initialised;
  sim.running = sim.inside = sim.touching = 0;
  ledger_leave();
  violations_forget(); /* its ledger has the texts of its own */
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
    thread_begins(t);
    t->next = sim.threads;
    sim.threads = t;
    pthread_setspecific(thread_key, t);
  }
  return t;
}

static void *sure(void *memory) {
  if (memory) return memory;
  fprintf(stderr, "cudasim: the process is out of memory\n");
  abort();
}

/* The program cannot distinguish this from a full device, so a message is printed. */
bool refuse_address(size_t size) {
  if (!sim.refused_addresses++)
    fprintf(stderr,
            "cudasim: the process has no address space for %zu bytes: %s. The call answers "
            "CUDA_ERROR_OUT_OF_MEMORY. The limits are those of ulimit -v and vm.max_map_count.\n",
            size, strerror(errno));
  return false;
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
