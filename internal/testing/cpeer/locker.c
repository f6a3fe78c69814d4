#include "locker.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct locker {
  struct ArrowAsyncProducer producer; /* private_data is the locker */
  struct ArrowAsyncDeviceStreamHandler* handler;
  const struct cpeer_node* tree;
  struct ArrowSchema schema;
  int64_t batches, nap;
  int how;

  pthread_mutex_t lock; /* of all below */
  pthread_cond_t changed;
  int64_t requested;
  int cancelled;
};

static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t counted = PTHREAD_COND_INITIALIZER;
static int64_t lockers, tasks;

static int64_t count(int64_t* which, int64_t n) {
  pthread_mutex_lock(&count_lock);
  int64_t now = *which += n;
  pthread_cond_broadcast(&counted);
  pthread_mutex_unlock(&count_lock);
  return now;
}

static void nap(int64_t microseconds) {
  if (microseconds > 0) nanosleep(&(struct timespec){0, microseconds * 1000}, NULL);
}

static void on_request(struct ArrowAsyncProducer* producer, int64_t n) {
  struct locker* l = producer->private_data;
  nap(l->nap);
  pthread_mutex_lock(&l->lock);
  l->requested += n;
  pthread_cond_signal(&l->changed);
  pthread_mutex_unlock(&l->lock);
}

static void on_cancel(struct ArrowAsyncProducer* producer) {
  struct locker* l = producer->private_data;
  nap(l->nap);
  pthread_mutex_lock(&l->lock);
  l->cancelled = 1;
  pthread_cond_signal(&l->changed);
  pthread_mutex_unlock(&l->lock);
}

static int extract_data(struct ArrowAsyncTask* task, struct ArrowDeviceArray* out) {
  const struct cpeer_node* tree = task->private_data;
  count(&tasks, -1);
  if (out == NULL) return 0;
  int err = cpeer_floor_export(tree, out);
  out->device_type = ARROW_DEVICE_CPU;
  return err;
}

/* Waits until a batch may be sent. Returns 0 if there is to be none. */
static int may_send(struct locker* l) {
  pthread_mutex_lock(&l->lock);
  while (l->requested == 0 && !l->cancelled) pthread_cond_wait(&l->changed, &l->lock);
  int may = !l->cancelled;
  if (may) l->requested--;
  pthread_mutex_unlock(&l->lock);
  return may;
}

static void produce(struct locker* l) {
  struct ArrowAsyncDeviceStreamHandler* h = l->handler;
  if (h->on_schema(h, &l->schema) != 0) return;
  for (int64_t i = 0; i < l->batches; i++) {
    if (!may_send(l)) return;
    struct ArrowAsyncTask task = {extract_data, (void*)(uintptr_t)l->tree};
    count(&tasks, 1);
    if (h->on_next_task(h, &task, NULL) != 0) return;
  }
  nap(l->nap / 2); /* the consumer takes the last batch, and requests another one */
  if (l->how == CPEER_LOCKER_ERROR) {
    h->on_error(h, EIO, "from a locker", NULL);
  } else {
    h->on_next_task(h, NULL, NULL);
  }
}

static void* run(void* argument) {
  struct locker* l = argument;
  produce(l);
  pthread_mutex_lock(&l->lock);
  l->handler->release(l->handler);
  pthread_mutex_unlock(&l->lock);
  if (l->schema.release != NULL) l->schema.release(&l->schema);
  pthread_mutex_destroy(&l->lock);
  pthread_cond_destroy(&l->changed);
  memset((void*)l, 0xdd, sizeof *l);
  free(l);
  count(&lockers, -1);
  return NULL;
}

int cpeer_locker_start(struct ArrowAsyncDeviceStreamHandler* handler, const struct cpeer_node* tree,
                       struct ArrowSchema* schema, int64_t batches, int how, int64_t nap) {
  struct locker* l = calloc(1, sizeof *l);
  l->producer = (struct ArrowAsyncProducer){ARROW_DEVICE_CPU, on_request, on_cancel, NULL, l};
  l->handler = handler;
  l->tree = tree;
  l->schema = *schema;
  schema->release = NULL;
  l->batches = batches;
  l->how = how;
  l->nap = nap;
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->changed, NULL);
  handler->producer = &l->producer;
  count(&lockers, 1);
  pthread_t thread;
  int err = pthread_create(&thread, NULL, run, l);
  return err != 0 ? err : pthread_detach(thread);
}

int64_t cpeer_lockers_left(int64_t seconds) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += seconds;
  int err = 0;
  pthread_mutex_lock(&count_lock);
  while (lockers != 0 && err == 0) err = pthread_cond_timedwait(&counted, &count_lock, &end);
  int64_t left = lockers;
  pthread_mutex_unlock(&count_lock);
  return left;
}

int64_t cpeer_locker_tasks(void) { return count(&tasks, 0); }
