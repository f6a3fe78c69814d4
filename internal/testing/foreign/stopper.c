#include "stopper.h"

#if defined(_WIN32)

/* A thread cannot be stopped by a signal. */
int foreign_stoppable(void) { return -1; }
void foreign_unstoppable(void) {}
int foreign_stop(void) { return 0; }
void foreign_go_on(void) {}

#else

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

/* One thread at a time. */
static struct {
  pthread_t thread;
  int known, stopped, let;
} now;

static int number(void) { return SIGUSR2; }

static void nap(void) {
  struct timespec t = {0, 20000};
  nanosleep(&t, NULL);
}

/* Naps: the thread may hold a lock that others need, so it stops for a while only. */
enum { LONGEST = 50 };

/* The signal comes between any two instructions of the thread, most often behind one that was slow. */
static void stop(int signal) {
  (void)signal;
  int before = errno;
  __atomic_store_n(&now.stopped, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < LONGEST && !__atomic_load_n(&now.let, __ATOMIC_SEQ_CST); i++) nap();
  __atomic_store_n(&now.stopped, 0, __ATOMIC_SEQ_CST);
  errno = before;
}

int foreign_stoppable(void) {
  struct sigaction action = {.sa_handler = stop, .sa_flags = SA_ONSTACK | SA_RESTART};
  sigemptyset(&action.sa_mask);
  if (sigaction(number(), &action, NULL) != 0) return -1;
  now.thread = pthread_self();
  __atomic_store_n(&now.known, 1, __ATOMIC_SEQ_CST);
  return 0;
}

void foreign_unstoppable(void) { __atomic_store_n(&now.known, 0, __ATOMIC_SEQ_CST); }

int foreign_stop(void) {
  __atomic_store_n(&now.let, 0, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&now.known, __ATOMIC_SEQ_CST) || pthread_kill(now.thread, number()) != 0) return 0;
  for (int i = 0; i < LONGEST; i++) {
    if (__atomic_load_n(&now.stopped, __ATOMIC_SEQ_CST)) return 1;
    nap();
  }
  return 0;
}

void foreign_go_on(void) {
  __atomic_store_n(&now.let, 1, __ATOMIC_SEQ_CST);
  for (int i = 0; i < LONGEST && __atomic_load_n(&now.stopped, __ATOMIC_SEQ_CST); i++) nap();
}

#endif
