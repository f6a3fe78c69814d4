/* Options, from cudasim_configure or from the environment. */
#include "sim.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The names that a library has were decided when it was built. */
#ifdef CUDASIM_13
enum { OF_13 = true, DEFAULT_VERSION = 13000 };
#else
enum { OF_13 = false, DEFAULT_VERSION = 12040 };
#endif

static const struct options defaults = {
    .devices = 1,
    .seed = 1,
    .memory = 16ull << 30,
    .host_memory = 16ull << 30,
    .version = DEFAULT_VERSION,
    .pools = 1,
    .managed = 1,
    .concurrent_managed_access = 1,
    .peer = 1,
    .read_only_register = 1,
    .poison = 1,
    .race = 1,
};

#define OPTION(name, limit) {#name, offsetof(struct options, name), limit}
static const struct {
  const char *name;
  size_t offset;
  uint64_t limit;
} numbers[] = {
    OPTION(devices, MAX_DEVICES),
    OPTION(delay, 60000000),
    OPTION(seed, UINT64_MAX),
    OPTION(pageable_async, 1),
    OPTION(pageable_strict, 1),
    OPTION(memory, 1ull << 46),
    OPTION(host_memory, 1ull << 46),
    OPTION(version, 999999),
    OPTION(pools, 1),
    OPTION(managed, 1),
    OPTION(concurrent_managed_access, 1),
    OPTION(coherent, MAX_DEVICES),
    OPTION(peer, 1),
    OPTION(read_only_register, 1),
    OPTION(poison, 1),
    OPTION(race, 1),
    OPTION(stacks, 2),
    OPTION(threads, 1),
};

static bool set_number(struct options *o, const char *name, const char *value) {
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (strcmp(numbers[i].name, name)) continue;
    char *end;
    errno = 0;
    uint64_t n = strtoull(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || errno || n > numbers[i].limit) return false;
    memcpy((char *)o + numbers[i].offset, &n, sizeof n);
    return true;
  }
  return false;
}

static bool set_path(char path[4096], const char *value) {
  if (strlen(value) >= 4096) return false;
  strcpy(path, value);
  return true;
}

static bool set_option(struct options *o, const char *name, const char *value) {
  if (!strcmp(name, "report")) return set_path(o->report, value);
  if (!strcmp(name, "ledger")) return set_path(o->ledger, value);
  if (!strcmp(name, "schedule")) {
    o->random = !strcmp(value, "random");
    o->lazy = !strcmp(value, "lazy");
    return o->random || o->lazy || !strcmp(value, "inorder");
  }
  if (!strcmp(name, "primary")) {
    o->stable_primary = !strcmp(value, "stable");
    return o->stable_primary || !strcmp(value, "new");
  }
  return set_number(o, name, value);
}

/* Programs of before version 13 take its _v2 names for the functions that they know. */
static bool check_version(uint64_t version) {
  if ((version >= 13000) == OF_13) return true;
  fprintf(stderr, "cudasim: version=%llu needs a library that is built %s -DCUDASIM_13, and this one was built %s\n",
          (unsigned long long)version, OF_13 ? "without" : "with", OF_13 ? "with" : "without");
  return false;
}

static bool parse(const char *text, struct options *o) {
  char *copy = strdup(text), *rest = copy, *pair;
  bool good = copy;
  while (good && (pair = strsep(&rest, ","))) {
    if (!*pair) continue;
    char *value = strchr(pair, '=');
    if (value) *value++ = 0;
    good = value && set_option(o, pair, value);
    if (!good) fprintf(stderr, "cudasim: no such option, or a bad value: %s=%s\n", pair, value ? value : "");
  }
  free(copy);
  return good && check_version(o->version);
}

int cudasim_configure(const char *text) {
  struct options o = defaults;
  if (text && !parse(text, &o)) return -1;
  sim_lock();
  bool early = !sim.configured;
  if (early) {
    sim.options = o;
    sim.configured = true;
  }
  sim_unlock();
  if (!early) fprintf(stderr, "cudasim: configured after the first call of the driver\n");
  return early ? 0 : -1;
}

/* A program may clear its environment before its first call of the driver. */
static char *at_load;

__attribute__((constructor)) static void remember(void) {
  const char *text = getenv("CUDASIM");
  at_load = text ? strdup(text) : NULL;
}

static void from_environment(void) {
  const char *text = getenv("CUDASIM");
  if (!text) text = at_load;
  sim.options = defaults;
  if (text && !parse(text, &sim.options)) abort();
  sim.configured = true;
}

/* Each call asks, so the lock is taken once only. */
void options_settle(void) {
  static atomic_bool settled;
  if (atomic_load_explicit(&settled, memory_order_acquire)) return;
  sim_lock();
  if (!sim.configured) from_environment();
  sim_unlock();
  atomic_store_explicit(&settled, true, memory_order_release);
}
