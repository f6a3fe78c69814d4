#include "async.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A mutex and the condition that something it guards has changed. */
struct lock {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
};

static void* lock_new(void) {
  struct lock* l = malloc(sizeof *l);
  pthread_mutex_init(&l->mutex, NULL);
  pthread_cond_init(&l->changed, NULL);
  return l;
}

static void lock_free(struct lock* l) {
  pthread_mutex_destroy(&l->mutex);
  pthread_cond_destroy(&l->changed);
  free(l);
}

static void enter(struct lock* l) { pthread_mutex_lock(&l->mutex); }

static void leave(struct lock* l) {
  pthread_cond_broadcast(&l->changed);
  pthread_mutex_unlock(&l->mutex);
}

/* Waits until done returns true; after a minute, returns an error. */
static int wait_until(struct lock* l, int (*done)(const void*, int64_t), const void* what, int64_t n) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 60;
  int err = 0;
  enter(l);
  while (!done(what, n) && err == 0) err = pthread_cond_timedwait(&l->changed, &l->mutex, &end);
  pthread_mutex_unlock(&l->mutex);
  return err;
}

/* The consumer. */

/* This thread is in a call of a producer; and in on_error or release of a handler. */
static _Thread_local int in_producer, in_last;

static void request(struct ArrowAsyncProducer* p, int64_t n) {
  in_producer++;
  p->request(p, n);
  in_producer--;
}

static void cancel(struct ArrowAsyncProducer* p) {
  in_producer++;
  p->cancel(p);
  in_producer--;
}

static struct cpeer_consumer* begin(struct ArrowAsyncDeviceStreamHandler* handler, int event) {
  struct cpeer_consumer* c = handler->private_data;
  enter(c->lock);
  if (c->in_handler++ > 0) c->overlaps++;
  if (in_producer > 0) c->reentrant++;
  if (c->n_events < CPEER_MANY) c->events[c->n_events++] = (int8_t)event;
  leave(c->lock);
  return c;
}

static int end(struct cpeer_consumer* c, int code) {
  enter(c->lock);
  c->in_handler--;
  leave(c->lock);
  return code;
}

/* Metadata contains its own length. */
static int64_t copy_metadata(char* to, int64_t room, const char* from) {
  int32_t pairs, size;
  if (from == NULL) return 0;
  int64_t at = sizeof pairs;
  memcpy(&pairs, from, sizeof pairs);
  for (int32_t i = 0; i < 2 * pairs; i++) {
    memcpy(&size, from + at, sizeof size);
    at += (int64_t)sizeof size + size;
  }
  if (at > room) return -1;
  memcpy(to, from, (size_t)at);
  return at;
}

static void request_often(struct ArrowAsyncProducer* p, int64_t times, int64_t n) {
  for (int64_t i = 0; i < times; i++) request(p, n);
}

static int on_schema(struct ArrowAsyncDeviceStreamHandler* handler, struct ArrowSchema* schema) {
  struct cpeer_consumer* c = begin(handler, CPEER_ON_SCHEMA);
  struct ArrowAsyncProducer* p = handler->producer;
  c->device_type = p->device_type;
  c->metadata_size = copy_metadata(c->metadata, sizeof c->metadata, p->additional_metadata);
  if (!c->leave_schema) {
    c->schema = *schema;
    schema->release = NULL;
  }
  request_often(p, c->schema_requests, c->schema_n);
  if (c->cancel_at == -1) cancel(p);
  return end(c, c->schema_code);
}

static int on_next_task(struct ArrowAsyncDeviceStreamHandler* handler, struct ArrowAsyncTask* task,
                        const char* metadata) {
  struct cpeer_consumer* c = begin(handler, task != NULL ? CPEER_ON_NEXT_TASK : CPEER_ON_END);
  struct ArrowAsyncProducer* p = handler->producer;
  int64_t number = c->n_tasks;
  c->task_metadata_size = copy_metadata(c->task_metadata, sizeof c->task_metadata, metadata);
  request_often(p, c->task_requests, c->task_n);
  if (c->cancel_at == number) cancel(p);
  int code = c->fail_at == number ? c->task_code : 0;
  if (task != NULL && c->extract_at_once) task->extract_data(task, NULL);
  enter(c->lock);
  if (task != NULL && number < CPEER_MANY) c->tasks[c->n_tasks++] = *task;
  leave(c->lock);
  return end(c, code);
}

static void on_error(struct ArrowAsyncDeviceStreamHandler* handler, int code, const char* message,
                     const char* metadata) {
  struct cpeer_consumer* c = begin(handler, CPEER_ON_ERROR);
  c->error_code = code;
  c->error_has_metadata = metadata != NULL;
  if (message != NULL) strncpy(c->error_message, message, sizeof c->error_message - 1);
  end(c, 0);
}

static void release(struct ArrowAsyncDeviceStreamHandler* handler) {
  struct cpeer_consumer* c = begin(handler, CPEER_RELEASE);
  if (c->metadata_size > 0) {
    char now[sizeof c->metadata];
    int64_t size = copy_metadata(now, sizeof now, handler->producer->additional_metadata);
    c->metadata_changed = size != c->metadata_size || memcmp(now, c->metadata, (size_t)size) != 0;
  }
  handler->release = NULL;
  enter(c->lock);
  c->in_handler--;
  c->released++;
  leave(c->lock);
}

struct cpeer_consumer* cpeer_consumer_new(void) {
  struct cpeer_consumer* c = calloc(1, sizeof *c);
  c->handler = (struct ArrowAsyncDeviceStreamHandler){on_schema, on_next_task, on_error, release, NULL, c};
  c->fail_at = -1;
  c->cancel_at = -2;
  c->lock = lock_new();
  return c;
}

void cpeer_consumer_free(struct cpeer_consumer* c) {
  if (c->schema.release != NULL) c->schema.release(&c->schema);
  lock_free(c->lock);
  free(c);
}

static int has_tasks(const void* c, int64_t n) {
  const struct cpeer_consumer* consumer = c;
  return consumer->n_tasks >= n || consumer->released;
}

static int is_released(const void* c, int64_t n) {
  (void)n;
  return ((const struct cpeer_consumer*)c)->released;
}

static int has_event(const void* c, int64_t event) {
  const struct cpeer_consumer* consumer = c;
  int received = memchr(consumer->events, (int)event, (size_t)consumer->n_events) != NULL;
  return (received && consumer->in_handler == 0) || consumer->released;
}

int cpeer_wait_tasks(struct cpeer_consumer* c, int64_t n) { return wait_until(c->lock, has_tasks, c, n); }
int cpeer_wait_released(struct cpeer_consumer* c) { return wait_until(c->lock, is_released, c, 0); }
int cpeer_wait_event(struct cpeer_consumer* c, int event) { return wait_until(c->lock, has_event, c, event); }

void cpeer_request(struct ArrowAsyncProducer* p, int64_t n) { request(p, n); }
void cpeer_cancel(struct ArrowAsyncProducer* p) { cancel(p); }

int cpeer_extract(const struct ArrowAsyncTask* task, struct ArrowDeviceArray* out) {
  struct ArrowAsyncTask moved = *task;
  return moved.extract_data(&moved, out);
}

struct call {
  struct ArrowAsyncProducer* p;
  int64_t n; /* 0: cancel */
};

static void* call_producer(void* argument) {
  const struct call* call = argument;
  if (call->n == 0) {
    cancel(call->p);
  } else {
    request(call->p, call->n);
  }
  return NULL;
}

static int run_on_threads(void* (*run)(void*), void* argument, int threads) {
  pthread_t started[64];
  int err = 0, n = 0;
  for (; n < threads && n < 64 && err == 0; n++) err = pthread_create(&started[n], NULL, run, argument);
  if (err != 0) n--;
  for (int i = 0; i < n; i++) pthread_join(started[i], NULL);
  return err;
}

int cpeer_request_on_threads(struct ArrowAsyncProducer* p, int64_t n, int threads) {
  return run_on_threads(call_producer, &(struct call){p, n}, threads);
}

struct all {
  struct ArrowAsyncProducer** producers;
  int64_t n;
};

static void* call_all(void* argument) {
  const struct all* all = argument;
  for (int64_t i = 0; i < all->n; i++) {
    struct ArrowAsyncProducer* p = all->producers[i];
    request(p, 1);
    cancel(p);
  }
  return NULL;
}

int cpeer_call_all_on_threads(struct ArrowAsyncProducer** all, int64_t n, int threads) {
  return run_on_threads(call_all, &(struct all){all, n}, threads);
}

struct load {
  pthread_t threads[8];
  int n, over;
};

static void* burn(void* argument) {
  const struct load* load = argument;
  while (!__atomic_load_n(&load->over, __ATOMIC_RELAXED)) {
  }
  return NULL;
}

void* cpeer_load_begin(int threads) {
  struct load* load = calloc(1, sizeof *load);
  while (load->n < threads && load->n < 8 && pthread_create(&load->threads[load->n], NULL, burn, load) == 0) load->n++;
  return load;
}

void cpeer_load_end(void* begun) {
  struct load* load = begun;
  __atomic_store_n(&load->over, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < load->n; i++) pthread_join(load->threads[i], NULL);
  free(load);
}

/* The producer. */

/* The original release of a task's array, whose release is counted. */
struct counted {
  struct cpeer_producer* p;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

static void add_arrays(struct cpeer_producer* p, int64_t n) {
  enter(p->lock);
  p->arrays += n;
  leave(p->lock);
}

static void release_counted(struct ArrowArray* array) {
  struct counted* c = array->private_data;
  array->private_data = c->private_data;
  c->release(array);
  array->release = NULL;
  add_arrays(c->p, -1);
  free(c);
}

static void count_array(struct cpeer_producer* p, struct ArrowArray* array) {
  struct counted* c = malloc(sizeof *c);
  *c = (struct counted){p, array->release, array->private_data};
  array->private_data = c;
  array->release = release_counted;
  add_arrays(p, 1);
}

/* Waits for cpeer_let. */
static void wait_for_let(struct cpeer_producer* p) {
  struct lock* l = p->lock;
  enter(l);
  p->waiting = 1;
  pthread_cond_broadcast(&l->changed);
  while (!p->let) pthread_cond_wait(&l->changed, &l->mutex);
  leave(l);
}

static int extract_data(struct ArrowAsyncTask* self, struct ArrowDeviceArray* out) {
  struct cpeer_task* t = self->private_data;
  struct cpeer_producer* p = t->p;
  enter(p->lock);
  int again = t->extracted++ > 0;
  if (again) {
    p->twice++;
  } else if (out == NULL) {
    p->dropped++;
  } else {
    p->extracted++;
  }
  leave(p->lock);
  if (again) return EINVAL;
  if (out == NULL) return 0;
  if (t->wait) wait_for_let(p);
  if (t->code != 0) return t->code;
  if (t->no_array) {
    memset(out, 0, sizeof *out);
    return 0;
  }
  int err = cpeer_floor_export(p->tree, out);
  if (err != 0) return err;
  out->device_type = t->device_type;
  count_array(p, &out->array);
  return 0;
}

/* The action that the test requested, inside request or cancel, on the calling thread. */
static void misbehave(struct cpeer_producer* p) {
  struct ArrowAsyncDeviceStreamHandler* h = p->handler;
  switch (p->in_request) {
    case CPEER_SEND_RELEASE: h->release(h); break;
    case CPEER_SEND_ERROR:
      h->on_error(h, EIO, "from inside", NULL);
      h->release(h);
      break;
    case CPEER_WAIT: wait_for_let(p); break;
  }
}

static void called(struct cpeer_producer* p, int64_t n) {
  enter(p->lock);
  if (p->calls++ > 0) p->overlaps++;
  if (in_last > 0) p->forbidden++;
  if (p->released || (n != 0 && p->cancels > 0)) p->late++;
  if (n == 0) {
    p->cancels++;
  } else {
    p->requests++;
    p->requested += n;
    p->last_n = n;
  }
  leave(p->lock);
  misbehave(p);
  enter(p->lock);
  p->calls--;
  leave(p->lock);
}

static void on_request(struct ArrowAsyncProducer* self, int64_t n) { called(self->private_data, n); }
static void on_cancel(struct ArrowAsyncProducer* self) { called(self->private_data, 0); }

struct cpeer_producer* cpeer_producer_new(struct ArrowAsyncDeviceStreamHandler* handler) {
  struct cpeer_producer* p = calloc(1, sizeof *p);
  p->producer = (struct ArrowAsyncProducer){ARROW_DEVICE_CPU, on_request, on_cancel, NULL, p};
  p->handler = handler;
  p->lock = lock_new();
  return p;
}

void cpeer_producer_free(struct cpeer_producer* p) {
  lock_free(p->lock);
  free(p);
}

/* A call of the handler, for a thread of its own. */
struct sending {
  struct cpeer_producer* p;
  int what;
  struct ArrowSchema* schema;
  struct ArrowAsyncTask* task;
  const char *message, *metadata;
  int code;
};

static void* send_now(void* argument) {
  struct sending* s = argument;
  struct ArrowAsyncDeviceStreamHandler* h = s->p->handler;
  switch (s->what) {
    case CPEER_ON_SCHEMA: s->code = h->on_schema(h, s->schema); break;
    case CPEER_ON_NEXT_TASK: s->code = h->on_next_task(h, s->task, s->metadata); break;
    case CPEER_ON_ERROR:
      in_last++;
      h->on_error(h, s->code, s->message, s->metadata);
      in_last--;
      break;
    case CPEER_RELEASE:
      in_last++;
      h->release(h);
      in_last--;
      enter(s->p->lock);
      s->p->released = 1;
      leave(s->p->lock);
      break;
  }
  return NULL;
}

static int send_on_thread(struct sending s) {
  int err = cpeer_on_thread(send_now, &s);
  return err != 0 ? -err : s.code;
}

int cpeer_send_schema(struct cpeer_producer* p, struct ArrowSchema* schema) {
  return send_on_thread((struct sending){.p = p, .what = CPEER_ON_SCHEMA, .schema = schema});
}

int cpeer_send_task(struct cpeer_producer* p, struct cpeer_task* t, const char* metadata) {
  struct ArrowAsyncTask task = {extract_data, t};
  return send_on_thread((struct sending){.p = p, .what = CPEER_ON_NEXT_TASK, .task = &task, .metadata = metadata});
}

struct flood {
  struct cpeer_producer* p;
  struct cpeer_task** tasks;
  int64_t n, next, ready, refused;
};

/* One of them: it waits until all are there. */
static void* send_at_once(void* argument) {
  struct flood* f = argument;
  struct ArrowAsyncDeviceStreamHandler* h = f->p->handler;
  struct ArrowAsyncTask task = {extract_data, f->tasks[__atomic_fetch_add(&f->next, 1, __ATOMIC_SEQ_CST)]};
  __atomic_fetch_add(&f->ready, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&f->ready, __ATOMIC_SEQ_CST) < f->n) sched_yield();
  if (h->on_next_task(h, &task, NULL) != 0) __atomic_fetch_add(&f->refused, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

int64_t cpeer_send_tasks_at_once(struct cpeer_producer* p, struct cpeer_task** tasks, int64_t n) {
  struct flood f = {.p = p, .tasks = tasks, .n = n};
  int err = run_on_threads(send_at_once, &f, (int)n);
  return err != 0 ? -err : f.refused;
}

int cpeer_send_bare_task(struct cpeer_producer* p) {
  struct ArrowAsyncTask task = {NULL, NULL};
  return send_on_thread((struct sending){.p = p, .what = CPEER_ON_NEXT_TASK, .task = &task});
}

int cpeer_send_end(struct cpeer_producer* p) {
  return send_on_thread((struct sending){.p = p, .what = CPEER_ON_NEXT_TASK});
}

int cpeer_send_error(struct cpeer_producer* p, int code, const char* message, const char* metadata) {
  return send_on_thread(
      (struct sending){.p = p, .what = CPEER_ON_ERROR, .code = code, .message = message, .metadata = metadata});
}

int cpeer_send_release(struct cpeer_producer* p) {
  return send_on_thread((struct sending){.p = p, .what = CPEER_RELEASE});
}

struct cpeer_producer cpeer_producer_now(struct cpeer_producer* p) {
  enter(p->lock);
  struct cpeer_producer now = *p;
  leave(p->lock);
  return now;
}

static int is_requested(const void* p, int64_t n) { return ((const struct cpeer_producer*)p)->requested >= n; }

static int is_cancelled(const void* p, int64_t n) {
  (void)n;
  return ((const struct cpeer_producer*)p)->cancels > 0;
}

static int is_waiting(const void* p, int64_t n) {
  (void)n;
  return ((const struct cpeer_producer*)p)->waiting;
}

static int is_returned(const void* p, int64_t n) {
  (void)n;
  return ((const struct cpeer_producer*)p)->calls == 0;
}

int cpeer_wait_requested(struct cpeer_producer* p, int64_t n) { return wait_until(p->lock, is_requested, p, n); }
int cpeer_wait_cancelled(struct cpeer_producer* p) { return wait_until(p->lock, is_cancelled, p, 0); }
int cpeer_wait_waiting(struct cpeer_producer* p) { return wait_until(p->lock, is_waiting, p, 0); }
int cpeer_wait_returned(struct cpeer_producer* p) { return wait_until(p->lock, is_returned, p, 0); }

void cpeer_let(struct cpeer_producer* p) {
  enter(p->lock);
  p->let = 1;
  leave(p->lock);
}
