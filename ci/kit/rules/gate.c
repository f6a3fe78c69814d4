/* Pending work: a host function that returns when it is told to. */
#include "rules.h"

#include <time.h>

/* One for the life of the process: a rule that has failed leaves the process with its gate closed. */
static struct {
  atomic_bool open;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool watched, expired, thread;
  struct timespec limit; /* of the watched call */
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

static struct timespec in_milliseconds(int milliseconds) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_nsec += milliseconds % 1000 * 1000000L;
  t.tv_sec += milliseconds / 1000 + t.tv_nsec / 1000000000;
  t.tv_nsec %= 1000000000;
  return t;
}

static bool has_passed(struct timespec t) {
  struct timespec now = in_milliseconds(0);
  return now.tv_sec > t.tv_sec || (now.tv_sec == t.tv_sec && now.tv_nsec >= t.tv_nsec);
}

/* Opens the gate if a watched call takes longer than its limit. */
static void watch_calls(void* unused) {
  (void)unused;
  pthread_mutex_lock(&gate.mutex);
  for (;;) {
    struct timespec limit = gate.limit; /* another one at each turn: the call may have ended, and the next begun */
    if (gate.watched && has_passed(limit)) {
      gate.expired = true;
      gate.watched = false;
      open_gate();
    }
    if (gate.watched)
      pthread_cond_timedwait(&gate.changed, &gate.mutex, &limit);
    else
      pthread_cond_wait(&gate.changed, &gate.mutex);
  }
}

void watch(int milliseconds) {
  static struct thread watcher;
  pthread_mutex_lock(&gate.mutex);
  if (!gate.thread) start(&watcher, watch_calls, NULL);
  gate.thread = true;
  gate.expired = false;
  gate.watched = true;
  gate.limit = in_milliseconds(milliseconds);
  pthread_cond_signal(&gate.changed);
  pthread_mutex_unlock(&gate.mutex);
}

bool unwatch(void) {
  pthread_mutex_lock(&gate.mutex);
  gate.watched = false;
  pthread_cond_signal(&gate.changed);
  bool waited = gate.expired;
  pthread_mutex_unlock(&gate.mutex);
  return waited;
}

void end_watch(const char* call, bool should_wait) {
  bool waited = unwatch();
  if (should_wait) open_gate();
  if (waited && !should_wait) differs("%s waits for pending work", call);
  if (!waited && should_wait) differs("%s does not wait for pending work", call);
}
