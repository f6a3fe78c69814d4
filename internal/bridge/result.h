/* What callbacks return. */
#pragma once

#include <stddef.h>
#include <string.h>

/* Returns a code. If it is a failure, the struct that was not filled is zero, which is a released one: some consumers
 * read it all the same, as DuckDB does, for which 1 is the only failure. */
static inline int cdevice_v0_result(int code, void* out, size_t size) {
  if (code != 0 && out != NULL) memset(out, 0, size);
  return code;
}
