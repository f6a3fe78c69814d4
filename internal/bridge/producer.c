#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mremap */
#endif
#include "producer.h"
#include "fork.h"

#include <stdlib.h>

#ifdef _WIN32
#include <windows.h>

static SRWLOCK mutex = SRWLOCK_INIT;

static void lock(void) { AcquireSRWLockExclusive(&mutex); }
static void unlock(void) { ReleaseSRWLockExclusive(&mutex); }
#else
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }
#endif

#ifdef __linux__
#include <sys/mman.h>
#endif

extern void cdevice_v0_go_request(uint64_t handle, int64_t n);
extern void cdevice_v0_go_cancel(uint64_t handle);

/* A chunk begins with its counts, in the place of the first slot. */
struct chunk {
  size_t taken, ended;
};

struct slot {
  struct ArrowAsyncProducer producer;
  struct chunk* chunk;
};

_Static_assert(sizeof(struct chunk) <= sizeof(struct slot), "the counts fit in the place of a slot");

#define CHUNK ((size_t)2 << 20)
#define SLOTS (CHUNK / sizeof(struct slot) - 1)

/* Each dead chunk is a mapping, and a process has 65,530 of them unless the system is told
 * otherwise: we take half, which is 1.4 billion streams. */
#define DEAD_CHUNKS 32768

static struct chunk* current; /* the chunk that structs are taken from, or NULL */
static int64_t chunks, dead_chunks, dead_limit = DEAD_CHUNKS;

#ifdef __linux__

static struct slot* dead; /* the memory of all dead chunks, once there is one */

static void dead_request(struct ArrowAsyncProducer* producer, int64_t n) {
  (void)producer;
  (void)n;
}

static void dead_cancel(struct ArrowAsyncProducer* producer) { (void)producer; }

/* No huge page: a program that has one stream needs one small page. */
static struct chunk* map_chunk(void) {
  void* at = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return NULL;
  madvise(at, CHUNK, MADV_NOHUGEPAGE);
  return at;
}

static struct slot* map_dead(void) {
  struct slot* all = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return NULL;
  for (size_t i = 0; i <= SLOTS; i++) {
    all[i].producer = (struct ArrowAsyncProducer){.request = dead_request, .cancel = dead_cancel};
  }
  if (mprotect(all, CHUNK, PROT_READ) == 0) return all;
  munmap(all, CHUNK);
  return NULL;
}

/* Puts dead structs in the place of the chunk, in one step for every thread that reads it: a processor that
 * finds the new mapping finds the structs that were written before it was made. A size of 0 makes a second mapping of
 * shared memory. There is no file: the program may close descriptors that it does not know. */
static int replace(struct chunk* chunk) {
  if (dead == NULL) dead = map_dead();
  if (dead == NULL) return 0;
  return mremap(dead, 0, CHUNK, MREMAP_MAYMOVE | MREMAP_FIXED, chunk) != MAP_FAILED;
}

#else /* chunks are kept: 48 bytes a stream */

static struct chunk* map_chunk(void) { return calloc(1, CHUNK); }

static int replace(struct chunk* chunk) {
  (void)chunk;
  return 0;
}

#endif

static struct slot* take(void) {
  lock();
  struct slot* slot = NULL;
  if (current == NULL && (current = map_chunk()) != NULL) chunks++;
  if (current != NULL) {
    slot = (struct slot*)current + ++current->taken;
    slot->chunk = current;
    if (current->taken == SLOTS) current = NULL;
  }
  unlock();
  return slot;
}

static void give_up(struct chunk* chunk) {
  lock();
  if (++chunk->ended == SLOTS && dead_chunks < dead_limit && replace(chunk)) {
    chunks--;
    dead_chunks++;
  }
  unlock();
}

struct ArrowAsyncProducer* cdevice_v0_producer_new(size_t size) {
  char* metadata = NULL;
  if (size != 0 && (metadata = malloc(size)) == NULL) return NULL;
  struct slot* slot = take();
  if (slot == NULL) {
    free(metadata);
    return NULL;
  }
  slot->producer.additional_metadata = metadata;
  return &slot->producer;
}

/* Late callers may read private_data meanwhile, and nothing else of the struct but its callbacks. The word needs
 * no order: all that it names is read under the lock of its handle, which has ended. */
void cdevice_v0_producer_end(struct ArrowAsyncProducer* producer) {
  free((void*)(uintptr_t)producer->additional_metadata);
  producer->additional_metadata = NULL;
  __atomic_store_n(&producer->private_data, NULL, __ATOMIC_RELAXED);
  give_up(((struct slot*)producer)->chunk);
}

static int64_t read_count(const int64_t* count) {
  lock();
  int64_t n = *count;
  unlock();
  return n;
}

int64_t cdevice_v0_producer_chunks(void) { return read_count(&chunks); }
int64_t cdevice_v0_producer_dead_chunks(void) { return read_count(&dead_chunks); }
int64_t cdevice_v0_producer_chunk_size(void) { return SLOTS; }

int64_t cdevice_v0_producer_limit_dead(int64_t limit) {
  lock();
  int64_t before = dead_limit;
  dead_limit = limit;
  unlock();
  return before;
}

/* Once these have called Go, they look at the struct no more: another memory may be there. */

static uint64_t handle_of(const struct ArrowAsyncProducer* producer) {
  return (uint64_t)(uintptr_t)__atomic_load_n(&producer->private_data, __ATOMIC_RELAXED);
}

void cdevice_v0_producer_request(struct ArrowAsyncProducer* producer, int64_t n) {
  if (!cdevice_v0_forked()) cdevice_v0_go_request(handle_of(producer), n);
}

void cdevice_v0_producer_cancel(struct ArrowAsyncProducer* producer) {
  if (!cdevice_v0_forked()) cdevice_v0_go_cancel(handle_of(producer));
}
