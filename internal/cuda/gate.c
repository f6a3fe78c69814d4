/* Holding a stream back, on a real device as on a simulated one: a host function in the stream waits until
 * the gate is opened. A driver calls the host functions of a context one after the other: gates open in the order in
 * which their functions are called. */
#include "driver.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#ifdef _WIN32
#include <windows.h>

struct gate {
  HANDLE opened;
  atomic_bool reached;
};

static struct gate* gate_make(void) {
  struct gate* g = malloc(sizeof *g);
  if (!g) return NULL;
  g->opened = CreateEventA(NULL, TRUE, FALSE, NULL);
  if (g->opened) return g;
  free(g);
  return NULL;
}

static void gate_free(struct gate* g) {
  CloseHandle(g->opened);
  free(g);
}

static void gate_wait(struct gate* g) { WaitForSingleObject(g->opened, INFINITE); }
static void gate_signal(struct gate* g) { SetEvent(g->opened); }
#else
#include <pthread.h>

struct gate {
  pthread_mutex_t mutex;
  pthread_cond_t opened;
  int open;
  atomic_bool reached;
};

static struct gate* gate_make(void) {
  struct gate* g = malloc(sizeof *g);
  if (!g) return NULL;
  pthread_mutex_init(&g->mutex, NULL);
  pthread_cond_init(&g->opened, NULL);
  g->open = 0;
  return g;
}

static void gate_free(struct gate* g) {
  pthread_cond_destroy(&g->opened);
  pthread_mutex_destroy(&g->mutex);
  free(g);
}

static void gate_wait(struct gate* g) {
  pthread_mutex_lock(&g->mutex);
  while (!g->open) pthread_cond_wait(&g->opened, &g->mutex);
  pthread_mutex_unlock(&g->mutex);
}

static void gate_signal(struct gate* g) {
  pthread_mutex_lock(&g->mutex);
  g->open = 1;
  pthread_cond_signal(&g->opened);
  pthread_mutex_unlock(&g->mutex);
}
#endif

static atomic_int gates; /* that have not been passed */

/* The stream passes after the gate was opened, so it is the last to touch it. */
static void pass(void* p) {
  struct gate* g = p;
  atomic_store(&g->reached, true);
  gate_wait(g);
  gate_free(g);
  atomic_fetch_sub(&gates, 1);
}

cdevice_v0_cuda_result cdevice_v0_cuda_gate_new(cdevice_v0_cuda_table d, uintptr_t context, uintptr_t stream) {
  cdevice_v0_cuda_result r = {CDEVICE_V0_CUDA_NO_MEMORY, cdevice_v0_cuda_call_cuLaunchHostFunc, 0};
  struct gate* g = gate_make();
  if (!g) return r;
  atomic_init(&g->reached, false);
  atomic_fetch_add(&gates, 1);
  r = cdevice_v0_cuda_launch_host(d, context, stream, pass, g);
  r.value = (uintptr_t)g;
  if (!r.code) return r;
  atomic_fetch_sub(&gates, 1);
  gate_free(g);
  return r;
}

int cdevice_v0_cuda_gate_reached(uint64_t gate) { return atomic_load(&((struct gate*)(uintptr_t)gate)->reached); }

int cdevice_v0_cuda_gates(void) { return atomic_load(&gates); }

void cdevice_v0_cuda_gate_open(uint64_t gate) { gate_signal((struct gate*)(uintptr_t)gate); }
