/* Streams and their workers. */
#include "sim.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { GREATEST_PRIORITY = -5 };

CUresult stream_new(struct context *context, enum role role, unsigned flags, struct stream **out) {
  static uint64_t ids;
  struct stream *s = fresh(sizeof *s);
  CUresult r = object_add(&s->object, STREAM);
  if (r) {
    free(s);
    return r;
  }
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&s->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  s->context = context;
  s->context->object.refs++;
  s->role = role;
  s->flags = flags;
  s->id = ++ids;
  s->random = sim.options.seed * 0x9e3779b97f4a7c15 + s->id;
  order_stream_new(s);
  s->label = label_of(s, self()->call);
  s->next = context->streams;
  context->streams = s;
  ledger_object(&s->object);
  *out = s;
  return CUDA_SUCCESS;
}

static void unlist(struct stream *stream) {
  order_stream_end(stream);
  struct stream **s = &stream->context->streams;
  while (*s != stream) s = &(*s)->next;
  *s = stream->next;
  object_unref(&stream->object);
}

/* Queued work completes; then the worker frees the stream. */
void stream_close(struct stream *s) {
  if (s->object.dead) return;
  object_die(&s->object);
  capture_leave(s);
  pthread_cond_broadcast(&s->changed);
  if (!s->working) unlist(s);
}

void stream_free(struct stream *s) {
  nodes_free(&s->ends);
  label_drop(s->label);
  label_drop(s->captured);
  pthread_cond_destroy(&s->changed);
  object_unref(&s->context->object);
  free(s);
}

/* The delay of the options, or a random one. */
static void lie(struct stream *s) {
  uint64_t delay = sim.options.delay * 1000;
  if (!delay) return;
  if (sim.options.random) {
    uint64_t x = s->random += 0x9e3779b97f4a7c15; /* splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    delay = (x ^ x >> 31) % (2 * delay + 1);
  }
  uint64_t end = nanoseconds() + delay;
  struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
  while (nanoseconds() < end && !sim.ended) pthread_cond_timedwait(&s->changed, &sim.lock, &until);
}

static bool lazy_until_asked(const struct stream *s, const struct op *op) {
  return sim.options.lazy && op->seq > s->demanded && !sim.ended;
}

static void *work(void *data) {
  struct stream *s = data;
  sim_lock();
  for (;;) {
    while (!s->first && !s->object.dead) pthread_cond_wait(&s->changed, &sim.lock);
    struct op *op = s->first;
    if (!op) break;
    while (lazy_until_asked(s, op)) pthread_cond_wait(&s->changed, &sim.lock);
    points_wait(&op->after);
    ipc_event_await(op);
    lie(s);
    while (op_held(op)) pthread_cond_wait(&sim.go, &sim.lock);
    if (op->kind == OP_HOST)
      functions_run(op);
    else if (!sim.ended)
      op_run(op);
    s->first = op->next;
    if (!s->first) s->tail = NULL;
    s->done = op->seq;
    s->copies -= op_is_transfer(op);
    pthread_cond_broadcast(&s->changed);
    if (s->context->full == s) pthread_cond_broadcast(&sim.ready);
    op_free(op);
  }
  unlist(s);
  sim_unlock();
  return NULL;
}

/* Signals are for the threads of the program. */
bool stream_thread(void *(*run)(void *), void *data) {
  pthread_t thread;
  pthread_attr_t attributes;
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool made = !pthread_create(&thread, &attributes, run, data);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return made;
}

CUresult stream_start(struct stream *s) {
  if (!s->working) s->working = stream_thread(work, s);
  return s->working ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

/* The legacy default stream comes after, and before, all others of its context that
 * are not CU_STREAM_NON_BLOCKING. */
bool stream_precedes(const struct stream *before, const struct stream *after) {
  if (before == after || (before->role != LEGACY && after->role != LEGACY)) return false;
  return !(before->flags & CU_STREAM_NON_BLOCKING) && !(after->flags & CU_STREAM_NON_BLOCKING);
}

static CUresult per_thread_stream(struct context *c, struct stream **out) {
  struct thread *t = self();
  for (*out = t->streams; *out; *out = (*out)->next_own)
    if ((*out)->context == c) return CUDA_SUCCESS;
  CUresult r = stream_new(c, PER_THREAD, 0, out);
  if (r) return r;
  (*out)->object.refs++;
  (*out)->next_own = t->streams;
  t->streams = *out;
  return CUDA_SUCCESS;
}

CUresult stream_find(CUstream handle, struct stream **out) {
  if (!handle) handle = self()->per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
    *out = object_find(handle, STREAM);
    return *out ? (*out)->context->fault : CUDA_ERROR_INVALID_HANDLE;
  }
  struct context *c;
  CUresult r = current_context(&c);
  if (r) return r;
  if (handle == CU_STREAM_PER_THREAD) return per_thread_stream(c, out);
  *out = c->legacy;
  return CUDA_SUCCESS;
}

CUresult stream_find_current(CUstream handle, struct stream **out) {
  struct context *c;
  CUresult r = current_context(&c);
  return r ? r : stream_find(handle, out);
}

/* What drivers were seen to take before a call waits: so many fills, and so many copies from page-locked memory with a
 * record after each. */
enum { MOST_PENDING = 1022, MOST_COPIES = 55 };

static bool has_room(const struct stream *s, enum room room) {
  return s->queued - s->done < MOST_PENDING && (room != FOR_COPY || s->copies < MOST_COPIES);
}

/* The work of a GPU ends. That of a machine that is paused, or has an event held back, may end after the next call
 * alone. */
static bool is_freeing(const struct context *c) { return c->freeing && !sim.paused && !sim.held; }

static bool is_ready(const struct stream *s, enum room room) {
  const struct context *c = s->context;
  return s->capture || sim.ended || (!is_freeing(c) && (!c->full || c->full == s) && has_room(s, room));
}

/* Meanwhile, nothing is queued in the other streams of the context. */
static void await_room(struct stream *s, enum room room) {
  s->object.refs++;
  s->context->full = s;
  while (!has_room(s, room) && !sim.ended) {
    stream_demand(s, s->done + 1);
    pthread_cond_wait(&sim.ready, &sim.lock);
  }
  s->context->full = NULL;
  pthread_cond_broadcast(&sim.ready);
  object_unref(&s->object);
}

CUresult stream_find_ready(CUstream handle, enum room room, struct stream **out) {
  for (;;) {
    CUresult r = stream_find(handle, out);
    if (r || is_ready(*out, room)) return r;
    if (is_freeing((*out)->context) || (*out)->context->full)
      pthread_cond_wait(&sim.ready, &sim.lock);
    else
      await_room(*out, room);
  }
}

CUresult stream_find_current_ready(CUstream handle, enum room room, struct stream **out) {
  struct context *c;
  CUresult r = current_context(&c);
  return r ? r : stream_find_ready(handle, room, out);
}

CUresult stream_create_with_priority(CUstream *stream, unsigned flags, int priority) {
  struct context *c;
  struct stream *s;
  if (!stream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = current_context(&c);
  if (!r) r = stream_new(c, ORDINARY, flags, &s);
  if (r) return r;
  s->priority = priority > 0 ? 0 : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
  *stream = (CUstream)s->object.handle;
  return CUDA_SUCCESS;
}

CUresult stream_create(CUstream *stream, unsigned flags) { return stream_create_with_priority(stream, flags, 0); }

CUresult stream_destroy(CUstream stream) {
  struct stream *s = object_find(stream, STREAM);
  if (!s || s->role != ORDINARY) return CUDA_ERROR_INVALID_HANDLE;
  stream_close(s);
  return CUDA_SUCCESS;
}

CUresult stream_query(CUstream stream) {
  struct stream *s;
  CUresult r = stream_find(stream, &s);
  if (!r) r = capture_forbids_stream(s);
  if (r) return r;
  stream_demand(s, s->queued);
  if (s->done < s->queued) return CUDA_ERROR_NOT_READY;
  struct marks marks = {0};
  marks_of_stream(&marks, s);
  host_learns(&marks);
  return CUDA_SUCCESS;
}

CUresult stream_synchronize(CUstream stream) {
  struct stream *s;
  CUresult r = stream_find(stream, &s);
  if (!r) r = capture_forbids_stream(s);
  return r ? r : stream_finish(s);
}

CUresult stream_finish(struct stream *s) {
  struct marks marks = {0};
  marks_of_stream(&marks, s);
  CUresult r = stream_wait(s, s->queued);
  host_learns(&marks);
  return r;
}

/* Schedule lazy runs work only when the host, or work that the host waits for, has to wait for
 * it. */
void stream_demand(struct stream *s, uint64_t seq) {
  if (!sim.options.lazy || seq <= s->demanded) return;
  s->demanded = seq;
  pthread_cond_broadcast(&s->changed);
}

CUresult stream_wait(struct stream *s, uint64_t seq) {
  s->object.refs++;
  sim.synchronisations++;
  stream_demand(s, seq);
  while (s->done < seq) pthread_cond_wait(&s->changed, &sim.lock);
  CUresult r = s->context->fault;
  object_unref(&s->object);
  return r;
}

/* Even an operation that does nothing would wait for these. */
static bool has_to_wait(const struct stream *s) {
  if (point_pending(s->context->barrier)) return true;
  for (const struct stream *other = s->context->streams; other; other = other->next)
    if (stream_precedes(other, s) && other->done < other->queued) return true;
  return false;
}

CUresult stream_wait_event(CUstream stream, CUevent event, unsigned flags) {
  struct stream *s;
  if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = stream_find_current_ready(stream, FOR_WORK, &s);
  if (r) return r;
  struct event *e = object_find(event, EVENT);
  if (!e) return CUDA_ERROR_INVALID_HANDLE;
  return capture_takes_wait(s, e, flags, &r) ? r : stream_await(s, e);
}

CUresult stream_await(struct stream *s, struct event *e) {
  const uint64_t remote = ipc_event_latest(e);
  if (remote) return ipc_event_queue_wait(s, e, remote);
  const bool passed = e->record.stream == s || !point_pending(e->record);
  if (passed && !has_to_wait(s)) {
    order_waited(s, e);
    return CUDA_SUCCESS;
  }
  struct op *op = op_new(OP_WAIT);
  if (!passed) points_add(&op->after, e->record);
  order_waits(op, e);
  return op_push(s, op);
}

CUresult stream_flags(CUstream stream, unsigned *flags) {
  struct stream *s;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = stream_find(stream, &s);
  if (!r) *flags = s->flags;
  return r;
}

CUresult stream_priority(CUstream stream, int *priority) {
  struct stream *s;
  if (!priority) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = stream_find(stream, &s);
  if (!r) *priority = s->priority;
  return r;
}

CUresult stream_context(CUstream stream, CUcontext *context) {
  struct stream *s;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = stream_find(stream, &s);
  if (!r) *context = (CUcontext)s->context->object.handle;
  return r;
}

/* There are no green contexts. */
CUresult stream_contexts(CUstream stream, CUcontext *context, void **green) {
  CUresult r = green ? stream_context(stream, context) : CUDA_ERROR_INVALID_VALUE;
  if (!r) *green = NULL;
  return r;
}

CUresult stream_device(CUstream stream, CUdevice *device) {
  struct stream *s;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = stream_find(stream, &s);
  if (!r) *device = s->context->device;
  return r;
}

CUresult stream_id(CUstream stream, unsigned long long *id) {
  struct stream *s;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = stream_find(stream, &s);
  if (!r) *id = s->id;
  return r;
}

static CUresult host_function(CUstream stream, CUhostFn host, CUstreamCallback callback, void *data) {
  struct stream *s;
  CUresult r = stream_find_current_ready(stream, FOR_WORK, &s);
  if (r) return r;
  struct op *op = op_new(OP_HOST);
  op->host = host;
  op->callback = callback;
  op->callback_stream = stream;
  op->data = data;
  return op_push(s, op);
}

CUresult stream_launch_host(CUstream stream, CUhostFn function, void *data) {
  return function ? host_function(stream, function, NULL, data) : CUDA_ERROR_INVALID_VALUE;
}

CUresult stream_add_callback(CUstream stream, CUstreamCallback function, void *data, unsigned flags) {
  return function && !flags ? host_function(stream, NULL, function, data) : CUDA_ERROR_INVALID_VALUE;
}
