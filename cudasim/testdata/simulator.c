/* What rules of the simulator share. */
#include "simulator.h"

void measures_memory(void) {
  const char *emulator = getenv("CDEVICE_TEST_EMULATOR");
  if (emulator && *emulator) skip("the emulator takes memory");
}

/* The functions of cudasim.h, found in the library that is loaded, as those of the driver are. */
#define FIND(name)                                  \
  void *found = find_function(#name);               \
  if (found == NULL) stop("there is no %s", #name); \
  *(void **)&f = found
#define CONTROL(result, name, params, args) \
  result name params {                      \
    result(*f) params;                      \
    FIND(name);                             \
    return f args;                          \
  }
#define CONTROL_VOID(name, params, args) \
  void name params {                     \
    void(*f) params;                     \
    FIND(name);                          \
    f args;                              \
  }
CONTROL(int, cudasim_configure, (const char *options), (options))
CONTROL_VOID(cudasim_fail, (const char *function, uint64_t k, int result), (function, k, result))
CONTROL_VOID(cudasim_fail_times, (const char *function, uint64_t k, uint64_t times, int result),
             (function, k, times, result))
CONTROL(int, cudasim_failed, (const char **function), (function))
CONTROL_VOID(cudasim_pause, (void), ())
CONTROL_VOID(cudasim_resume, (void), ())
CONTROL(int, cudasim_event_hold, (void *event), (event))
CONTROL(int, cudasim_event_fire, (void *event), (event))
CONTROL(uint64_t, cudasim_calls, (const char *function), (function))
CONTROL_VOID(cudasim_reset_counters, (void), ())
CONTROL_VOID(cudasim_host_read, (const void *address, size_t size), (address, size))
CONTROL_VOID(cudasim_host_write, (void *address, size_t size), (address, size))
CONTROL_VOID(cudasim_host_signal, (const void *key), (key))
CONTROL_VOID(cudasim_host_wait, (const void *key), (key))
CONTROL_VOID(cudasim_internal_begin, (uintptr_t *keys, size_t count), (keys, count))
CONTROL_VOID(cudasim_internal_end, (void), ())
CONTROL_VOID(cudasim_give_back, (uintptr_t key), (key))
CONTROL_VOID(cudasim_forget, (uintptr_t key), (key))
CONTROL(uintptr_t, cudasim_act, (uintptr_t key), (key))
CONTROL_VOID(cudasim_read, (uintptr_t address, size_t size, uintptr_t key), (address, size, key))
CONTROL_VOID(cudasim_publish, (uintptr_t key), (key))
CONTROL_VOID(cudasim_keep, (uintptr_t what, size_t size), (what, size))
CONTROL_VOID(cudasim_hand_out, (uintptr_t what, size_t size), (what, size))
CONTROL_VOID(cudasim_free_later, (uintptr_t address), (address))
CONTROL_VOID(cudasim_caller, (const char *text), (text))
CONTROL_VOID(cudasim_drain, (void), ())
CONTROL_VOID(cudasim_forget_violations, (void), ())
CONTROL(size_t, cudasim_report, (char *out, size_t size), (out, size))
CONTROL(int, cudasim_write_report, (void), ())
CONTROL_VOID(cudasim_shut_down, (void), ())

static char *find(const char *key, char **text) {
  char quoted[64];
  *text = simulator_report();
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  char *found = strstr(*text, quoted);
  if (found == NULL) stop("the report has no %s: %s", quoted, *text);
  return found + strlen(quoted);
}

long long reported(const char *key, int index) {
  char *text, *at = find(key, &text);
  at += strspn(at, " [");
  for (int i = 0; i < index; i++) at = strchr(at, ',') + 1;
  long long value = strtoll(at, NULL, 10);
  free(text);
  return value;
}

bool reports(const char *list, const char *needle) {
  char *text, *at = find(list, &text);
  char *end = strchr(at, ']');
  *end = '\0';
  bool found = strstr(at, needle) != NULL;
  free(text);
  return found;
}
