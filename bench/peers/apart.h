/* Memory of one thread. */
#pragma once

#include <stdlib.h>
#include <string.h>

/* processors fetch cache lines in pairs */
#define APART 128

/* Zeroed memory that shares no cache line: that of two producers or consumers, on two threads. */
static inline void* apart(size_t size) {
  size = (size + APART) / APART * APART;
  void* at = aligned_alloc(APART, size);
  if (at != NULL) memset(at, 0, size);
  return at;
}
