/* Rules of the simulator itself: what cudasim.h and README.md say, and no driver shows or promises.
 *
 * They are rules of the program in ci/kit/rules, which is built with these files for the tests. Each runs in a process
 * of its own, in which nothing is initialised. */
#pragma once

#define GROUP "simulator"
#include "../../ci/kit/rules/rules.h"
#include "../src/cudasim.h"

/* SIMULATED(name, options of the machine, further fields) { ... } */
#define SIMULATED(id, ...) RULE(id, MANUAL, "cudasim.h.", 0, false, true, __VA_ARGS__)

CUmemoryPool new_pool(CUmemLocation where, int type);
CUdeviceptr new_pooled(size_t size, CUstream stream); /* allocated in the stream */

/* A number of the report: of an array, the index-th. */
long long reported(const char *key, int index);
/* Whether the list under the key has an entry with this text in it. */
bool reports(const char *list, const char *text);
