/* Counts of objects in C memory that any thread changes. */
#pragma once

#include <stdint.h>

enum {
  CDEVICE_V0_OTHERS, /* blocks that are no trees */
  CDEVICE_V0_TREES,  /* trees whose last release has not returned; see also exports.h */
  CDEVICE_V0_OWNERS, /* struct cdevice_v0_exports */
  CDEVICE_V0_COUNTS
};

/* Adds n to a count, and returns a small number, of the calling thread. */
uint64_t cdevice_v0_count(int kind, int64_t n);
int64_t cdevice_v0_counted(int kind);
