/* What the ledger has, in situations that a program of the driver API cannot make, or that end it.
 * Each prints the report, which the ledger shall agree with, and is killed. It is linked to the
 * simulator's own files. */
#include "../../src/sim.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                         \
  do {                                                   \
    if ((call) != 0) {                                   \
      fprintf(stderr, "line %d: %s\n", __LINE__, #call); \
      exit(1);                                           \
    }                                                    \
  } while (0)

static CUcontext context;

static void use(void) {
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
}

static CUdeviceptr new_memory(size_t size) {
  CUdeviceptr address;
  OK(cuMemAlloc_v2(&address, size));
  return address;
}

static CUevent new_event(void) {
  CUevent event;
  OK(cuEventCreate(&event, 0));
  return event;
}

static void keep_event(CUevent event, bool kept) {
  sim_lock();
  object_keep(object_find(event, EVENT), kept);
  sim_unlock();
}

static void keep_memory(CUdeviceptr address, bool kept) {
  sim_lock();
  block_keep(block_at(address), kept);
  sim_unlock();
}

static void keep_references(uint64_t count) {
  sim_lock();
  primary_keep(0, count);
  sim_unlock();
}

/* Device memory is not the host's. */
static void violate(int times) {
  CUdeviceptr m = new_memory(64);
  while (times--) cudasim_host_read((void *)m, 1);
  OK(cuMemFree_v2(m));
}

/* Leaks: an event, 64 bytes and 1 reference. Kept: an event, 128 bytes and 2 references. */
static void kept(void) {
  use();
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  new_event();
  keep_event(new_event(), true);
  new_memory(64);
  keep_memory(new_memory(128), true);
  keep_references(2);
}

static void not_kept_any_more(void) {
  use();
  CUevent event = new_event();
  CUdeviceptr m = new_memory(64);
  for (int i = 1; i >= 0; i--) {
    keep_event(event, i);
    keep_event(event, i);
    keep_memory(m, i);
    keep_references((uint64_t)i);
  }
}

/* The one that is left of the references was not kept. */
static void kept_and_released(void) {
  use();
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  keep_references(2);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUdeviceptr m = new_memory(64);
  keep_memory(m, true);
  OK(cuMemFree_v2(m));
  CUevent event = new_event();
  keep_event(event, true);
  OK(cuEventDestroy_v2(event));
}

/* 20,000 events, of which the first and the last 1,000 are destroyed, and 1,000 before those are kept. */
static void full(void) {
  enum { COUNT = 20000, SOME = 1000 };
  static CUevent event[COUNT];
  use();
  for (int i = 0; i < COUNT; i++) event[i] = new_event();
  for (int i = COUNT - 2 * SOME; i < COUNT; i++) keep_event(event[i], true);
  for (int i = 0; i < SOME; i++) {
    OK(cuEventDestroy_v2(event[i]));
    OK(cuEventDestroy_v2(event[COUNT - 1 - i]));
  }
}

/* 20,000 were live once, and one is. */
static void full_and_empty_again(void) {
  enum { COUNT = 20000 };
  static CUevent event[COUNT];
  use();
  for (int i = 0; i < COUNT; i++) event[i] = new_event();
  for (int i = 0; i < COUNT; i++) OK(cuEventDestroy_v2(event[i]));
  new_event();
}

/* More places than the ledger has groups, after 17,000 events of one. */
static void full_of_many_places(void) {
  char place[16];
  use();
  for (int i = 0; i < 17000; i++) new_event();
  for (int i = 0; i < 300; i++) {
    snprintf(place, sizeof place, "place %d", i);
    cudasim_caller(place);
    new_event();
  }
}

static void many_violations(void) {
  use();
  violate(150);
}

/* The kinds beyond the hundredth are counted. */
static void many_kinds_of_violations(void) {
  use();
  sim_lock();
  for (int i = 0; i < 3 * 150; i++) violation("kind %d in stream %d", i % 150, i);
  sim_unlock();
}

static void forgotten_violations(void) {
  use();
  violate(150);
  cudasim_forget_violations();
  violate(1);
}

static void shut_down(void) {
  use();
  violate(1);
  new_memory(4096);
  new_event();
  cudasim_shut_down();
}

static void none(void) {
  use();
  OK(cuDevicePrimaryCtxRelease_v2(0));
}

#define SITUATION(name) {#name, name}
static const struct {
  const char *name;
  void (*run)(void);
} situations[] = {
    SITUATION(kept),
    SITUATION(not_kept_any_more),
    SITUATION(kept_and_released),
    SITUATION(full),
    SITUATION(full_and_empty_again),
    SITUATION(full_of_many_places),
    SITUATION(many_violations),
    SITUATION(many_kinds_of_violations),
    SITUATION(forgotten_violations),
    SITUATION(shut_down),
    SITUATION(none),
};

int main(int argc, char **argv) {
  for (size_t i = 0; argc == 2 && i < sizeof situations / sizeof *situations; i++)
    if (!strcmp(situations[i].name, argv[1])) situations[i].run();
  static char report[4 << 20];
  if (cudasim_report(report, sizeof report) > sizeof report) return 1;
  puts(report);
  fflush(stdout);
  return raise(SIGKILL);
}
