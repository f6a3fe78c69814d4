/* Rules of the simulator itself: what cudasim.h and README.md say, and no driver shows or promises.
 *
 * They are rules of the program in ci/kit/rules, which is built with these files for the tests. Each runs in a process
 * of its own, which may leave its objects to its end. */
#pragma once

#define GROUP "simulator"
#include "../../ci/kit/rules/rules.h"
#include "../src/cudasim.h"

/* BARE(name, options of the machine, further fields) { ... }: nothing is initialised. */
#define BARE(id, ...) RULE(id, MANUAL, "cudasim.h.", 0, false, true, __VA_ARGS__)
/* The same, with the primary context of device 0 current, ... */
#define SIMULATED(id, ...)          \
  static void on_device_##id(void); \
  BARE(id, __VA_ARGS__) {           \
    use(0);                         \
    on_device_##id();               \
  }                                 \
  static void on_device_##id(void)
/* ... and with the objects that a rule begins with in ci/kit/rules. */
#define WITH_OBJECTS(id, ...)          \
  static void with_objects_##id(void); \
  SIMULATED(id, __VA_ARGS__) {         \
    begin_rule();                      \
    with_objects_##id();               \
  }                                    \
  static void with_objects_##id(void)

/* Skips a rule that measures the memory of the process where an emulator of another processor runs it
 * (ci/arm64/lacks/address_space_is_given_back.c). */
void measures_memory(void);

/* A number of the report: of an array, the index-th. */
long long reported(const char *key, int index);
/* Whether the list under the key has an entry with this text in it. */
bool reports(const char *list, const char *text);
