#include "fork.h"

const char cdevice_v0_forked_text[] =
    "cdevice: this process was forked from one that runs Go, and no Go runtime survives a fork: "
    "use the start method spawn or forkserver, or load the library in the child only";

#ifdef _WIN32
int cdevice_v0_forked(void) { return 0; }
#else
#include <pthread.h>

static int forked; /* written once, in a process that has one thread */

static void in_child(void) { forked = 1; }

/* os/exec and posix_spawn replace the child's program at once, and call no handler. */
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

int cdevice_v0_forked(void) { return forked; }
#endif
