/* The counters and the live objects, as JSON. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pid_t process;

__attribute__((constructor)) static void remember(void) { process = getpid(); }

static int by_name(const void *a, const void *b) {
  return strcmp((*(const struct call *const *)a)->name, (*(const struct call *const *)b)->name);
}

/* One function has as many counters as it has symbols. */
static void write_calls(FILE *f) {
  int count = 0, room = 0;
  const struct call **all = NULL;
  for (const struct call *c = sim.calls; c; c = c->next) {
    all = grow(all, count, &room, sizeof *all);
    all[count++] = c;
  }
  if (count) qsort(all, (size_t)count, sizeof *all, by_name);
  const char *separator = "";
  for (int i = 0; i < count;) {
    const char *name = all[i]->name;
    uint64_t calls = 0;
    for (; i < count && !strcmp(all[i]->name, name); i++) calls += all[i]->count;
    if (!calls) continue;
    fprintf(f, "%s\"%s\": %llu", separator, name, (unsigned long long)calls);
    separator = ", ";
  }
  free(all);
}

static void write_number(FILE *f, const char *name, uint64_t value) {
  fprintf(f, "\"%s\": %llu", name, (unsigned long long)value);
}

static uint64_t live_bytes(const struct device *d) { return d->bytes; }
static uint64_t peak_bytes(const struct device *d) { return d->peak; }
static uint64_t references(const struct device *d) { return d->primary_refs; }

static void write_per_device(FILE *f, const char *name, uint64_t (*value)(const struct device *)) {
  fprintf(f, "\"%s\": [", name);
  for (uint64_t d = 0; d < sim.options.devices; d++)
    fprintf(f, "%s%llu", d ? ", " : "", (unsigned long long)value(&sim.devices[d]));
  fprintf(f, "]");
}

/* The program's: not default streams, default pools or primary contexts. */
static bool is_of_program(const struct object *o) {
  switch (o->kind) {
    case CONTEXT: return !((const struct context *)o)->primary;
    case STREAM: return ((const struct stream *)o)->role == ORDINARY;
    case POOL: return !((const struct pool *)o)->is_default;
    case GRAPH: return !((const struct graph *)o)->capture;
    default: return true;
  }
}

static void count(struct object *o, void *data) { *(uint64_t *)data += is_of_program(o); }

static void write_objects(FILE *f, const char *name, enum kind kind) {
  uint64_t n = 0;
  object_each(kind, count, &n);
  fprintf(f, ", ");
  write_number(f, name, n);
}

static void write_live(FILE *f) {
  write_per_device(f, "device_bytes", live_bytes);
  fprintf(f, ", \"managed_bytes\": %llu, \"host_bytes\": %llu, \"registered_bytes\": %llu, ",
          (unsigned long long)sim.managed_bytes, (unsigned long long)sim.host_bytes,
          (unsigned long long)sim.registered_bytes);
  write_number(f, "allocations", sim.block_count);
  write_objects(f, "pools", POOL);
  write_objects(f, "streams", STREAM);
  write_objects(f, "events", EVENT);
  write_objects(f, "contexts", CONTEXT);
  write_objects(f, "graphs", GRAPH);
  fprintf(f, ", ");
  write_per_device(f, "primary_references", references);
}

struct list {
  FILE *file;
  uint64_t count;
};

static void item(struct list *l) { fprintf(l->file, "%s\n    ", l->count++ ? "," : ""); }

static int device_of(const struct object *o) {
  switch (o->kind) {
    case CONTEXT: return ((const struct context *)o)->device;
    case STREAM: return ((const struct stream *)o)->context->device;
    case EVENT: return ((const struct event *)o)->context->device;
    case POOL: return ((const struct pool *)o)->device;
    default: return -1; /* of no device */
  }
}

static void write_leaked_object(struct object *o, void *data) {
  struct list *l = data;
  if (!is_of_program(o)) return;
  item(l);
  fprintf(l->file, "\"%s: 0x%zx", o->call, (size_t)o->handle);
  if (device_of(o) >= 0) fprintf(l->file, " on device %d", device_of(o));
  fprintf(l->file, "\"");
}

static uint64_t write_leaks(FILE *f) {
  struct list l = {f, 0};
  for (size_t i = 0; i < sim.block_count; i++) {
    const struct block *b = sim.blocks[i];
    item(&l);
    fprintf(f, "\"%s: %zu bytes at 0x%zx on device %d\"", b->call, b->size, (size_t)b->address, b->device);
  }
  for (int kind = CONTEXT; kind <= GRAPH; kind++) object_each((enum kind)kind, write_leaked_object, &l);
  for (int d = 0; d < MAX_DEVICES; d++) {
    if (!sim.devices[d].primary_refs) continue;
    item(&l);
    fprintf(f, "\"cuDevicePrimaryCtxRetain: %llu references to device %d\"",
            (unsigned long long)sim.devices[d].primary_refs, d);
  }
  return l.count;
}

static void write_violations(FILE *f) {
  struct list l = {f, 0};
  const uint64_t room = sizeof sim.violations / sizeof *sim.violations;
  for (uint64_t i = 0; i < sim.violation_count && i < room; i++) {
    item(&l);
    fprintf(f, "\"%s\"", sim.violations[i]);
  }
  if (sim.violation_count <= room) return;
  item(&l);
  fprintf(f, "\"... and %llu more\"", (unsigned long long)(sim.violation_count - room));
}

/* Returns the number of leaks and violations. */
static uint64_t write_report(FILE *f) {
  static const char *const bytes[] = {"htod", "dtoh", "dtod", "peer", "htoh", "memset"};
  fprintf(f, "{\n  \"calls\": {");
  write_calls(f);
  fprintf(f, "},\n  ");
  write_number(f, "failed_calls", sim.failed_calls);
  fprintf(f, ",\n  ");
  write_number(f, "synchronisations", sim.synchronisations);
  fprintf(f, ",\n  \"bytes\": {");
  for (int i = 0; i < BYTE_KINDS; i++) {
    if (i) fprintf(f, ", ");
    write_number(f, bytes[i], sim.bytes[i]);
  }
  fprintf(f, "},\n  ");
  write_number(f, "staged_bytes", sim.staged_bytes);
  fprintf(f, ",\n  \"live\": {");
  write_live(f);
  fprintf(f, "},\n  ");
  write_per_device(f, "peak_device_bytes", peak_bytes);
  fprintf(f, ",\n  ");
  write_number(f, "refused_addresses", sim.refused_addresses);
  fprintf(f, ",\n  \"leaks\": [");
  uint64_t bad = write_leaks(f);
  fprintf(f, "],\n  \"violations\": [");
  write_violations(f);
  fprintf(f, "]\n}\n");
  return bad + sim.violation_count;
}

static char *report(size_t *size, uint64_t *bad) {
  char *text = NULL;
  FILE *f = open_memstream(&text, size);
  if (!f) abort();
  sim_lock();
  *bad = write_report(f);
  sim_unlock();
  fclose(f);
  return text;
}

size_t cudasim_report(char *out, size_t size) {
  size_t length;
  uint64_t bad;
  char *text = report(&length, &bad);
  if (out && size > length) memcpy(out, text, length + 1);
  free(text);
  return length + 1;
}

static bool write_to(const char *path, const char *text, bool bad) {
  if (!strcmp(path, "-")) return !bad || fputs(text, stderr) >= 0;
  FILE *f = fopen(path, "w");
  bool written = f && fputs(text, f) >= 0;
  if (f && fclose(f)) written = false;
  if (!written) fprintf(stderr, "cudasim: cannot write the report to %s\n", path);
  return written;
}

int cudasim_write_report(void) {
  sim_lock();
  if (!sim.configured) options_from_environment();
  sim_unlock();
  if (!*sim.options.report) return 0;
  cudasim_drain();
  size_t length;
  uint64_t bad;
  char *text = report(&length, &bad);
  bool written = write_to(sim.options.report, text, bad);
  free(text);
  return written ? 0 : -1;
}

/* At exit; not in a child that forked, which would write over its parent's. */
__attribute__((destructor)) static void leave(void) {
  if (getpid() == process) cudasim_write_report();
}
