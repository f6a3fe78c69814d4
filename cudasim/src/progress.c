/* Holding all streams back, and waiting until none can go on. */
#include "sim.h"

#include <time.h>

bool op_held(const struct op *op) { return !sim.ended && (sim.paused || (op->event && op->event->held)); }

void cudasim_pause(void) {
  sim_lock();
  const int own = !sim.ended && self()->in_host_function;
  sim.paused = true;
  pthread_cond_broadcast(&sim.ready);
  while (sim.running > own && !sim.ended) pthread_cond_wait(&sim.idle, &sim.lock);
  sim_unlock();
}

void cudasim_resume(void) {
  sim_lock();
  sim.paused = false;
  pthread_cond_broadcast(&sim.go);
  sim_unlock();
}

enum progress { NOTHING_LEFT, MOVING, KEPT_BACK };

/* Reports whether the stream cannot go on by itself. */
static bool kept_back(const struct stream *s) {
  const struct op *op = s->first;
  if (op_held(op) || op->kind == OP_HOST || op->remote) return true;
  for (int i = 0; i < op->after.count; i++)
    if (point_pending(op->after.at[i])) return true; /* then it depends on the other stream */
  return false;
}

/* Of the work that was queued before. */
static enum progress demand_all(uint64_t before) {
  enum progress progress = NOTHING_LEFT;
  for (const struct context *c = sim.contexts; c; c = c->next)
    for (struct stream *s = c->streams; s; s = s->next) {
      if (!s->first || s->first->serial >= before) continue;
      stream_demand(s, s->queued);
      if (!kept_back(s)) return MOVING;
      progress = KEPT_BACK;
    }
  return progress;
}

/* A host function may be about to return, so it is given some time. */
void cudasim_drain(void) {
  const uint64_t patience = 300000000;
  const struct timespec nap = {0, 100000};
  uint64_t since = nanoseconds();
  sim_lock();
  const uint64_t before = sim.queued;
  sim_unlock();
  for (;;) {
    sim_lock();
    const enum progress progress = demand_all(before);
    sim_unlock();
    if (progress == NOTHING_LEFT || sim.forked) return;
    if (progress == MOVING) since = nanoseconds();
    if (nanoseconds() - since > patience) return;
    nanosleep(&nap, NULL);
  }
}
