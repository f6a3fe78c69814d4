/* Names for reports: of streams, and of the places in the program that made a call. */
#include "sim.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct label {
  int refs;
  char *name, *origin;
};

/* ---- the caller ---- */

static bool is_own(const void *address) {
  Dl_info there, here;
  return dladdr(address, &there) && dladdr(&sim, &here) && there.dli_fbase == here.dli_fbase;
}

/* Leaves out the frames of the simulator itself and of the functions that it called to get them. */
static char *stack_of_call(void) {
  void *frames[24];
  int count = backtrace(frames, sizeof frames / sizeof *frames), own = count;
  while (own > 0 && !is_own(frames[own - 1])) own--;
  char **names = backtrace_symbols(frames, count), *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  if (!f) abort();
  for (int i = own; names && i < count; i++) {
    const char *slash = strrchr(names[i], '/'), *name = slash ? slash + 1 : names[i];
    fprintf(f, "%s%.*s", i > own ? " < " : "", (int)strcspn(name, " "), name); /* without the address */
  }
  fclose(f);
  free(names);
  return text;
}

char *caller_of_call(void) {
  if (!sim.options.stacks) return NULL;
  const char *said = self()->caller;
  return said ? strdup(said) : stack_of_call();
}

/* ---- streams ---- */

static char *format(const char *form, ...) {
  char *text;
  va_list args;
  va_start(args, form);
  if (vasprintf(&text, form, args) < 0) abort();
  va_end(args);
  return text;
}

static char *name_of(const struct stream *s) {
  static uint64_t numbers[MAX_DEVICES];
  const int device = s->context->device;
  switch (s->role) {
    case LEGACY: return format("the legacy stream of GPU %d", device);
    case PER_THREAD: return format("a per-thread stream of GPU %d", device);
    case LANE: return format("a graph on GPU %d", device);
    default: return format("stream %llu of GPU %d", (unsigned long long)++numbers[device], device);
  }
}

static char *origin_of(const struct stream *s, const char *maker) {
  if (s->role != ORDINARY) return NULL;
  char *caller = caller_of_call();
  char *origin = format("0x%zx, %s %s%s%s", (size_t)s->object.handle, maker ? "made by" : "handed out by",
                        maker ? maker : "a library", caller ? " at " : "", caller ? caller : "");
  free(caller);
  return origin;
}

struct label *label_of(const struct stream *s, const char *maker) {
  struct label *l = fresh(sizeof *l);
  *l = (struct label){1, name_of(s), origin_of(s, maker)};
  return l;
}

struct label *label_share(struct label *l) {
  l->refs++;
  return l;
}

void label_drop(struct label *l) {
  if (!l || --l->refs) return;
  free(l->name);
  free(l->origin);
  free(l);
}

const char *label_name(const struct label *l) { return l ? l->name : "the host"; }
const char *label_origin(const struct label *l) { return l ? l->origin : NULL; }
