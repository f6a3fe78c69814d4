/* Pending work: a host function that returns when it is told to. */
#include "rules.h"

#include <errno.h>
#include <time.h>

/* One for the life of the process: a rule that has failed leaves the process with its gate closed. */
static struct {
  atomic_bool open;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int limit; /* of the watched call, in milliseconds; 0: no call is watched */
  bool expired, thread;
} gate = {.open = true, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void wait_at_gate(void* unused) {
  (void)unused;
  while (!gate.open) nap(1);
}

void close_gate(CUstream stream) {
  gate.open = false;
  OK(cuLaunchHostFunc(stream, wait_at_gate, NULL));
}

void open_gate(void) { gate.open = true; }
bool gate_is_open(void) { return gate.open; }

/* Opens the gate if a watched call takes longer than its limit. */
static void* watch_calls(void* unused) {
  (void)unused;
  pthread_mutex_lock(&gate.mutex);
  for (;;) {
    while (gate.limit == 0) pthread_cond_wait(&gate.changed, &gate.mutex);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += gate.limit % 1000 * 1000000L;
    until.tv_sec += gate.limit / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int waited = 0;
    while (gate.limit != 0 && waited != ETIMEDOUT) waited = pthread_cond_timedwait(&gate.changed, &gate.mutex, &until);
    if (gate.limit == 0) continue;
    gate.expired = true;
    gate.limit = 0;
    open_gate();
  }
  return NULL;
}

void watch(int milliseconds) {
  pthread_mutex_lock(&gate.mutex);
  if (!gate.thread) {
    pthread_t id;
    if (pthread_create(&id, NULL, watch_calls, NULL)) stop("no thread can be made");
    gate.thread = true;
  }
  gate.expired = false;
  gate.limit = milliseconds;
  pthread_cond_signal(&gate.changed);
  pthread_mutex_unlock(&gate.mutex);
}

void end_watch(const char* call, bool should_wait) {
  pthread_mutex_lock(&gate.mutex);
  gate.limit = 0;
  pthread_cond_signal(&gate.changed);
  bool waited = gate.expired;
  pthread_mutex_unlock(&gate.mutex);
  if (should_wait) open_gate();
  if (waited && !should_wait) differs("%s waits for pending work", call);
  if (!waited && should_wait) differs("%s does not wait for pending work", call);
}

void forget_gate(void) { gate.open = true; }
