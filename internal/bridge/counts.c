#include "counts.h"
#include "local.h"

#include <stddef.h>

/* Counts, in parts: each thread changes its own, which may be below zero, and the sum is
 * the count. A cache line that all threads change would cost more than the rest of an
 * export. Threads beyond the last part share the first ones.
 *
 * A thread that reads that a tree has ended sees what the release callback of its producer did:
 * a count is changed after that, by a release, and read by an acquire. */
#define PARTS 64

static struct part {
  int64_t counts[CDEVICE_V0_COUNTS];
  char apart[128 - CDEVICE_V0_COUNTS * sizeof(int64_t)]; /* processors fetch cache lines in pairs */
} parts[PARTS] __attribute__((aligned(128)));

static uint64_t threads;
CDEVICE_V0_LOCAL(struct part, own)

uint64_t cdevice_v0_count(int kind, int64_t n) {
  struct part* part = own();
  if (part == NULL) set_own(part = &parts[__atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) % PARTS]);
  __atomic_fetch_add(&part->counts[kind], n, __ATOMIC_RELEASE);
  return (uint64_t)(part - parts);
}

int64_t cdevice_v0_counted(int kind) {
  int64_t n = 0;
  for (int i = 0; i < PARTS; i++) n += __atomic_load_n(&parts[i].counts[kind], __ATOMIC_ACQUIRE);
  return n;
}
