/* The entry points: each asks for a fork before it calls Go. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "capi.h"

/* No Go runtime survives a fork. */
static int forked; /* written once, in a process that has one thread */

static void in_child(void) { forked = 1; }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

int64_t arrowdevice_v1_call(const uint8_t* request, uint64_t size, int64_t wait_ns, uint8_t** reply,
                            uint64_t* reply_size) {
  return forked ? -1 : arrowdevice_go_call((uint8_t*)request, size, wait_ns, reply, reply_size);
}

int64_t arrowdevice_v1_wait(int64_t call, int64_t wait_ns, uint8_t** reply, uint64_t* reply_size) {
  return forked ? -1 : arrowdevice_go_wait(call, wait_ns, reply, reply_size);
}

void arrowdevice_v1_cancel(int64_t call) {
  if (!forked) arrowdevice_go_cancel(call);
}

void arrowdevice_v1_notify(int64_t call, int32_t fd) {
  if (!forked) arrowdevice_go_notify(call, fd);
}

void arrowdevice_v1_release(uint64_t handle) {
  if (!forked) arrowdevice_go_release(handle);
}

void arrowdevice_stream_released(uint64_t token) {
  if (!forked) arrowdevice_go_stream_released(token);
}

static uint64_t main_thread; /* set before a call on it asks; to every other thread, all values are another thread */

void arrowdevice_set_main_thread(uint64_t thread) { main_thread = thread; }

int arrowdevice_on_main_thread(void) { return (uint64_t)(uintptr_t)pthread_self() == main_thread; }

void arrowdevice_v1_free(void* memory) { free(memory); }

void* arrowdevice_move(void* from, size_t size, size_t release_at, int* consumed) {
  void* release;
  memcpy(&release, (char*)from + release_at, sizeof release);
  *consumed = release == NULL;
  if (*consumed) return NULL;
  void* moved = malloc(size);
  if (moved == NULL) return NULL;
  memcpy(moved, from, size);
  memset((char*)from + release_at, 0, sizeof release);
  return moved;
}
