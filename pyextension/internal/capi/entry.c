/* Calls of Go: each asks for a fork before. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capi.h"

/* No Go runtime survives a fork. */
static int forked; /* written once, in a process that has one thread */

static void in_child(void) { forked = 1; }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

int arrowdevice_forked(void) { return forked; }

void arrowdevice_cancel(uint64_t call) {
  if (!forked) arrowdevice_go_cancel((int64_t)call);
}

void arrowdevice_release(uint64_t handle) {
  if (!forked) arrowdevice_go_release(handle);
}

void arrowdevice_stream_released(uint64_t token) {
  if (!forked) arrowdevice_go_stream_released(token);
}

static uint64_t main_thread; /* set before a call on it asks; to every other thread, all values are another thread */

void arrowdevice_set_main_thread(uint64_t thread) { main_thread = thread; }

uint64_t arrowdevice_this_thread(void) { return (uint64_t)(uintptr_t)pthread_self(); }

int arrowdevice_on_main_thread(void) { return arrowdevice_this_thread() == main_thread; }

/* A handler that lacks SA_ONSTACK runs on the stack of a goroutine if Go code is interrupted, and destroys the heap.
 * The Go runtime adds the flag to the handlers that it finds when it starts; libraries that are loaded later, polars
 * for one, install others. */
static void add_stack(int number) {
  struct sigaction action;
  if (sigaction(number, NULL, &action) != 0 || action.sa_flags & SA_ONSTACK) return;
  if (!(action.sa_flags & SA_SIGINFO) && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) return;
  action.sa_flags |= SA_ONSTACK;
  sigaction(number, &action, NULL);
}

enum { SIGNALS = 31, CHECK_EVERY = 10000000 /* ns */ };

void arrowdevice_keep_signal_stacks(void) {
  static int64_t checked; /* threads may check twice */
  struct timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
  clock_gettime(CLOCK_MONOTONIC, &now);
#endif
  int64_t at = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
  if (at - __atomic_load_n(&checked, __ATOMIC_RELAXED) < CHECK_EVERY) return;
  for (int number = 1; number <= SIGNALS; number++) add_stack(number);
  __atomic_store_n(&checked, at, __ATOMIC_RELAXED);
}
