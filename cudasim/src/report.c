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
bool object_of_program(const struct object *o) {
  switch (o->kind) {
    case CONTEXT: return !((const struct context *)o)->primary;
    case STREAM: return ((const struct stream *)o)->role == ORDINARY;
    case POOL: return !((const struct pool *)o)->is_default;
    case GRAPH: return !((const struct graph *)o)->capture;
    default: return true;
  }
}

static void count(struct object *o, void *data) { *(uint64_t *)data += object_of_program(o); }

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
  write_objects(f, "executable_graphs", EXEC);
  fprintf(f, ", ");
  write_per_device(f, "primary_references", references);
}

struct list {
  FILE *file;
  uint64_t count;
  bool kept; /* lists what libraries keep: what they do not keep is a leak */
};

static void item(struct list *l, const char *text) { fprintf(l->file, "%s\n    \"%s\"", l->count++ ? "," : "", text); }

static int device_of(const struct object *o) {
  switch (o->kind) {
    case CONTEXT: return ((const struct context *)o)->device;
    case STREAM: return ((const struct stream *)o)->context->device;
    case EVENT: return ((const struct event *)o)->context->device;
    case POOL: return ((const struct pool *)o)->device;
    default: return -1; /* of no device */
  }
}

static void add_maker(struct caller *maker, int n, char text[LIVE_TEXT]) {
  const char *said = caller_text(maker);
  if (said) snprintf(text + n, LIVE_TEXT - (size_t)n, ", made at %s", said);
}

void object_text(const struct object *o, char text[LIVE_TEXT]) {
  int n = snprintf(text, LIVE_TEXT, "%s: 0x%zx", o->call, (size_t)o->handle);
  if (device_of(o) >= 0) n += snprintf(text + n, LIVE_TEXT - (size_t)n, " on device %d", device_of(o));
  add_maker(o->maker, n, text);
}

void block_text(const struct block *b, char text[LIVE_TEXT]) {
  int n =
      snprintf(text, LIVE_TEXT, "%s: %zu bytes at 0x%zx on device %d", b->call, b->size, (size_t)b->address, b->device);
  add_maker(block_user(b), n, text);
}

void references_text(uint64_t references, int device, char text[LIVE_TEXT]) {
  snprintf(text, LIVE_TEXT, "cuDevicePrimaryCtxRetain: %llu references to device %d", (unsigned long long)references,
           device);
}

static void write_live_object(struct object *o, void *data) {
  struct list *l = data;
  if (!object_of_program(o) || o->entry.kept != l->kept) return;
  char text[LIVE_TEXT];
  object_text(o, text);
  item(l, text);
}

static uint64_t write_list(FILE *f, bool kept) {
  struct list l = {f, 0, kept};
  char text[LIVE_TEXT];
  for (size_t i = 0; i < sim.block_count; i++) {
    if (sim.blocks[i]->entry.kept != kept) continue;
    block_text(sim.blocks[i], text);
    item(&l, text);
  }
  for (int kind = CONTEXT; kind <= EXEC; kind++) object_each((enum kind)kind, write_live_object, &l);
  for (int d = 0; d < MAX_DEVICES; d++) {
    const struct device *device = &sim.devices[d];
    uint64_t n = kept ? device->primary_kept : device->primary_refs - device->primary_kept;
    if (!n) continue;
    references_text(n, d, text);
    item(&l, text);
  }
  return l.count;
}

static void write_violations(FILE *f) {
  struct list l = {f, 0, false};
  uint64_t listed = 0;
  for (int i = 0; i < sim.violation_kinds; i++) {
    char *text = violation_text(&sim.violations[i]);
    item(&l, text);
    free(text);
    listed += sim.violations[i].times;
  }
  if (sim.violation_count == listed) return;
  char more[64];
  snprintf(more, sizeof more, "... and %llu more", (unsigned long long)(sim.violation_count - listed));
  item(&l, more);
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
  uint64_t bad = write_list(f, false);
  fprintf(f, "],\n  \"kept\": [");
  write_list(f, true);
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
  options_settle();
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
