/* Host functions. Those of a context run on one thread, one after the other: drivers were seen to call no other while
 * one has not returned. */
#include "sim.h"

#include <stdlib.h>

struct functions {
  int refs; /* of the context, and of the thread */
  pthread_cond_t changed;
  struct op *op;       /* its function runs, or is the next to run */
  uint64_t come, next; /* streams that had or have a function to run; the one whose turn it is */
  struct host *host;   /* what the worker of its stream knows, with the option threads */
  bool ended;          /* the context is gone */
};

static void drop(struct functions *f) {
  if (--f->refs) return;
  pthread_cond_destroy(&f->changed);
  free(f);
}

/* What one stream's functions know is not known to those of another, though they share a thread. */
static void run(struct functions *f) {
  struct thread *t = self();
  struct host *own = t->host;
  while (op_held(f->op)) pthread_cond_wait(&sim.go, &sim.lock);
  t->host = f->host;
  if (!sim.ended) op_run(f->op);
  t->host = own;
  f->op = NULL;
  f->next++;
  pthread_cond_broadcast(&f->changed);
}

static void *run_all(void *data) {
  struct functions *f = data;
  sim_lock();
  for (;;) {
    while (!f->op && !f->ended && !sim.ended) pthread_cond_wait(&f->changed, &sim.lock);
    if (!f->op) break;
    run(f);
  }
  drop(f);
  sim_unlock();
  return NULL;
}

CUresult functions_start(struct context *c) {
  if (c->functions) return CUDA_SUCCESS;
  struct functions *f = fresh(sizeof *f);
  f->refs = 2;
  pthread_cond_init(&f->changed, NULL);
  if (stream_thread(run_all, f)) {
    c->functions = f;
    return CUDA_SUCCESS;
  }
  f->refs = 1;
  drop(f);
  return CUDA_ERROR_OPERATING_SYSTEM;
}

void functions_run(struct op *op) {
  struct functions *f = op->stream->context->functions;
  const uint64_t turn = f->come++;
  while (turn != f->next && !sim.ended) pthread_cond_wait(&f->changed, &sim.lock);
  if (sim.ended) return;
  f->op = op;
  f->host = self()->host;
  pthread_cond_broadcast(&f->changed);
  while (f->op == op) pthread_cond_wait(&f->changed, &sim.lock);
}

void functions_wake(struct context *c) {
  if (c->functions) pthread_cond_broadcast(&c->functions->changed);
}

void functions_end(struct context *c) {
  if (!c->functions) return;
  c->functions->ended = true;
  functions_wake(c);
  drop(c->functions);
}
