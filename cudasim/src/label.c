/* Names of streams, for reports. */
#include "sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct label {
  int refs;
  bool own;
  char *name, *origin;
};

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

static char *origin_of(const struct stream *s, const char *maker, const struct caller *c) {
  if (s->role != ORDINARY) return NULL;
  const char *caller = caller_text(c);
  return format("0x%zx, %s %s%s%s", (size_t)s->object.handle, maker ? "made by" : "handed out by",
                maker ? maker : "a library", caller ? " at " : "", caller ? caller : "");
}

struct label *label_of(const struct stream *s, const char *maker) {
  struct label *l = fresh(sizeof *l);
  const struct caller *c = caller_of_call();
  const bool own = caller_library(c) && !caller_has_memory(c);
  *l = (struct label){1, own, name_of(s), origin_of(s, maker, c)};
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

bool label_own(const struct label *l) { return l && l->own; }
const char *label_name(const struct label *l) { return l ? l->name : "the host"; }
const char *label_origin(const struct label *l) { return l ? l->origin : NULL; }
