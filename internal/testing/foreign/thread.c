#include "thread.h"

#include <pthread.h>
#include <stddef.h>

static void* run(void* function) {
  foreign_go_call(*(uintptr_t*)function);
  return NULL;
}

int foreign_call_on_thread(uintptr_t function) {
  pthread_t thread;
  int err = pthread_create(&thread, NULL, run, &function);
  return err != 0 ? err : pthread_join(thread, NULL);
}
