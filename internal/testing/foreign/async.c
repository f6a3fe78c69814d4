#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "foreign.h"

/* The consumer. */

static int64_t load(int64_t* n) { return __atomic_load_n(n, __ATOMIC_ACQUIRE); }

static void set(int64_t* n, int64_t value) { __atomic_store_n(n, value, __ATOMIC_RELEASE); }

static void add(int64_t* n) { __atomic_add_fetch(n, 1, __ATOMIC_ACQ_REL); }

static struct foreign_consumer* called(struct ArrowAsyncDeviceStreamHandler* h) {
  struct foreign_consumer* c = h->private_data;
  if (load(&c->ended) || load(&c->failed) || load(&c->released)) add(&c->again);
  return c;
}

static int on_schema(struct ArrowAsyncDeviceStreamHandler* h, struct ArrowSchema* schema) {
  struct foreign_consumer* c = called(h);
  c->producer = h->producer;
  c->schema = *schema;
  schema->release = NULL;
  if (c->first > 0) c->producer->request(c->producer, c->first);
  set(&c->begun, 1);
  return 0;
}

static int on_next_task(struct ArrowAsyncDeviceStreamHandler* h, struct ArrowAsyncTask* task, const char* metadata) {
  (void)metadata;
  struct foreign_consumer* c = called(h);
  if (task == NULL) {
    set(&c->ended, 1);
    return 0;
  }
  int64_t n = load(&c->tasks_count);
  if (n + 1 == c->refuse_at) return c->code;
  if (n == (int64_t)(sizeof c->tasks / sizeof *c->tasks)) return ENOMEM;
  c->tasks[n] = *task;
  set(&c->tasks_count, n + 1);
  return 0;
}

static void on_error(struct ArrowAsyncDeviceStreamHandler* h, int code, const char* text, const char* metadata) {
  (void)metadata;
  struct foreign_consumer* c = called(h);
  c->error_code = code;
  if (text != NULL) strncpy(c->error_text, text, sizeof c->error_text - 1);
  set(&c->failed, 1);
}

static void on_release(struct ArrowAsyncDeviceStreamHandler* h) {
  struct foreign_consumer* c = h->private_data;
  if (load(&c->released)) add(&c->again);
  if (c->schema.release != NULL) c->schema.release(&c->schema);
  h->release = NULL;
  set(&c->begun, 1);
  set(&c->released, 1);
}

struct ArrowAsyncDeviceStreamHandler* foreign_consumer_begin(struct foreign_consumer* c) {
  c->handler = (struct ArrowAsyncDeviceStreamHandler){on_schema, on_next_task, on_error, on_release, NULL, c};
  return &c->handler;
}

struct deed {
  struct foreign_consumer* c;
  int64_t request; /* so many; 0: cancel, or extract */
  int64_t task;    /* to extract; -1: none */
  struct ArrowDeviceArray* out;
  int code;
};

static void* run_deed(void* a) {
  struct deed* d = a;
  struct ArrowAsyncProducer* p = d->c->producer;
  if (d->task >= 0) {
    struct ArrowAsyncTask moved = d->c->tasks[d->task];
    d->code = moved.extract_data(&moved, d->out);
  } else if (d->request > 0) {
    p->request(p, d->request);
  } else {
    p->cancel(p);
  }
  return NULL;
}

static int deed(struct deed d, int thread) {
  if (!thread) {
    run_deed(&d);
    return d.code;
  }
  pthread_t id;
  int err = pthread_create(&id, NULL, run_deed, &d);
  if (err == 0) err = pthread_join(id, NULL);
  return err != 0 ? err : d.code;
}

int foreign_request(struct foreign_consumer* c, int64_t n, int thread) {
  return deed((struct deed){c, n, -1, NULL, 0}, thread);
}

int foreign_cancel(struct foreign_consumer* c, int thread) { return deed((struct deed){c, 0, -1, NULL, 0}, thread); }

int foreign_extract(struct foreign_consumer* c, int64_t task, struct ArrowDeviceArray* out, int thread) {
  return deed((struct deed){c, 0, task, out, 0}, thread);
}

/* The producer. */

struct task {
  struct foreign_pusher* p;
  int64_t number; /* from 1 */
  int64_t extracted;
};

struct foreign_pusher {
  struct ArrowAsyncProducer producer;
  struct ArrowAsyncDeviceStreamHandler* handler;
  struct foreign_producer** producers;
  struct task* tasks;
  int64_t count;
  int32_t device_type;
  int64_t device_id;
  struct ArrowSchema schema;
  int trouble;
  int64_t at;
  int code;
  char* text;
  int64_t block_at;

  pthread_t thread;
  pthread_mutex_t lock; /* of requests */
  int64_t requested, asking, cancelled, sent, extracted, let, waiting, released, done, again;
};

static void pause_until(int64_t* what, int64_t at_least) {
  while (load(what) < at_least) usleep(50);
}

static void give(struct foreign_pusher* p, int64_t number, struct ArrowDeviceArray* out) {
  foreign_give(p->producers[number - 1], p->device_type, p->device_id, out);
}

static void give_up(struct foreign_pusher* p, int64_t number) {
  struct ArrowDeviceArray a;
  give(p, number, &a);
  a.array.release(&a.array);
}

static int extract(struct ArrowAsyncTask* self, struct ArrowDeviceArray* out) {
  struct task* t = self->private_data;
  struct foreign_pusher* p = t->p;
  if (__atomic_fetch_add(&t->extracted, 1, __ATOMIC_ACQ_REL) != 0) {
    add(&p->again);
    return EINVAL;
  }
  int fails = (p->trouble == FOREIGN_EXTRACT || p->trouble == FOREIGN_EXTRACT_TOLD) && t->number == p->at;
  if (out == NULL || fails) {
    give_up(p, t->number);
  } else {
    give(p, t->number, out);
  }
  add(&p->extracted);
  return out != NULL && fails ? p->code : 0;
}

static void request(struct ArrowAsyncProducer* self, int64_t n) {
  struct foreign_pusher* p = self->private_data;
  if (load(&p->released) || load(&p->cancelled)) add(&p->again);
  if (p->trouble == FOREIGN_FLOOD && load(&p->sent) + 1 >= p->at) {
    __atomic_add_fetch(&p->asking, n, __ATOMIC_ACQ_REL);
    usleep(3000);
  }
  pthread_mutex_lock(&p->lock);
  __atomic_add_fetch(&p->requested, n, __ATOMIC_ACQ_REL);
  pthread_mutex_unlock(&p->lock);
}

static void cancel(struct ArrowAsyncProducer* self) {
  struct foreign_pusher* p = self->private_data;
  if (load(&p->released)) add(&p->again);
  set(&p->cancelled, 1);
}

static void wait_for_let(struct foreign_pusher* p) {
  set(&p->waiting, 1);
  pause_until(&p->let, 1);
  set(&p->waiting, 0);
}

static int send(struct foreign_pusher* p, int64_t number) {
  p->tasks[number - 1] = (struct task){p, number, 0};
  struct ArrowAsyncTask task = {extract, &p->tasks[number - 1]};
  add(&p->sent);
  return p->handler->on_next_task(p->handler, &task, NULL);
}

static void fail(struct foreign_pusher* p) { p->handler->on_error(p->handler, p->code, p->text, NULL); }

/* Waits until a task was requested. Returns 0 if none will be. */
static int wanted(struct foreign_pusher* p, int64_t number) {
  while (load(&p->requested) < number && !load(&p->cancelled)) usleep(50);
  return !load(&p->cancelled);
}

/* Sends what is requested until all that was sent is extracted, and calls on_error. */
static void fail_later(struct foreign_pusher* p) {
  while (!load(&p->cancelled) && (load(&p->extracted) < load(&p->sent) || load(&p->sent) < p->at)) {
    int64_t next = load(&p->sent) + 1;
    if (next <= p->count && load(&p->requested) >= next && send(p, next) != 0) return;
    usleep(50);
  }
  if (!load(&p->cancelled)) fail(p);
}

/* Sends one more than is requested, while a request is in progress. */
static void flood(struct foreign_pusher* p, int64_t number) {
  while (load(&p->asking) == 0 && !load(&p->cancelled)) usleep(50);
  if (load(&p->cancelled) || send(p, number) != 0) return;
  if (send(p, number + 1) == 0) add(&p->again);
}

/* Sends one task. Returns 0 at the end of the stream. */
static int next(struct foreign_pusher* p, int64_t number) {
  if (p->block_at == number) wait_for_let(p);
  if (p->trouble == FOREIGN_FLOOD && p->at == number) {
    flood(p, number);
    return 0;
  }
  if (!wanted(p, number)) return 0;
  if (p->at == number && p->trouble == FOREIGN_ERROR) {
    fail(p);
    return 0;
  }
  if (p->at == number && p->trouble == FOREIGN_LOST) return 0;
  if (send(p, number) != 0) return 0;
  if (p->at == number && p->trouble == FOREIGN_EXTRACT_TOLD) {
    fail_later(p);
    return 0;
  }
  return 1;
}

static void push(struct foreign_pusher* p) {
  if (p->block_at == 0) wait_for_let(p);
  p->handler->producer = &p->producer;
  if (p->handler->on_schema(p->handler, &p->schema) != 0) return;
  for (int64_t number = 1; number <= p->count; number++) {
    if (!next(p, number)) return;
  }
  if (p->block_at > p->count) wait_for_let(p);
  if (p->at > p->count && p->trouble == FOREIGN_ERROR) {
    fail(p);
  } else if (!(p->at > p->count && p->trouble == FOREIGN_LOST) && !load(&p->cancelled)) {
    p->handler->on_next_task(p->handler, NULL, NULL);
  }
}

static void* run(void* a) {
  struct foreign_pusher* p = a;
  push(p);
  if (p->trouble == FOREIGN_FLOOD) pthread_mutex_lock(&p->lock);
  p->handler->release(p->handler);
  set(&p->released, 1);
  if (p->trouble == FOREIGN_FLOOD) pthread_mutex_unlock(&p->lock);
  if (p->schema.release != NULL) p->schema.release(&p->schema);
  for (int64_t number = load(&p->sent) + 1; number <= p->count; number++) give_up(p, number);
  set(&p->done, 1);
  return NULL;
}

struct foreign_pusher* foreign_push(struct ArrowAsyncDeviceStreamHandler* handler, struct foreign_producer** producers,
                                    int64_t count, int32_t device_type, int64_t device_id, struct ArrowSchema* schema,
                                    int trouble, int64_t at, int code, const char* text, int64_t block_at) {
  struct foreign_pusher* p = calloc(1, sizeof *p);
  if (p == NULL) return NULL;
  p->producer = (struct ArrowAsyncProducer){device_type, request, cancel, NULL, p};
  p->handler = handler;
  p->producers = calloc((size_t)count + 1, sizeof *p->producers);
  p->tasks = calloc((size_t)count + 1, sizeof *p->tasks);
  if (count > 0) memcpy(p->producers, producers, (size_t)count * sizeof *producers);
  p->count = count;
  p->device_type = device_type;
  p->device_id = device_id;
  p->schema = *schema;
  p->trouble = trouble;
  p->at = at;
  p->code = code;
  p->text = text == NULL ? NULL : strdup(text);
  p->block_at = block_at;
  pthread_mutex_init(&p->lock, NULL);
  if (pthread_create(&p->thread, NULL, run, p) != 0) {
    free(p);
    return NULL;
  }
  return p;
}

void foreign_pusher_let(struct foreign_pusher* p) { set(&p->let, 1); }

int64_t foreign_pusher_waiting(struct foreign_pusher* p) { return load(&p->waiting); }

int64_t foreign_pusher_done(struct foreign_pusher* p) { return load(&p->done); }

int64_t foreign_pusher_again(struct foreign_pusher* p) { return load(&p->again); }

void foreign_pusher_free(struct foreign_pusher* p) {
  pthread_join(p->thread, NULL);
  pthread_mutex_destroy(&p->lock);
  free(p->producers);
  free(p->tasks);
  free(p->text);
  free(p);
}
