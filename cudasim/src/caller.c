/* Who makes a call: the caller says it, or it is the place in C that the call returns to, with stacks=2 those of its
 * callers, too, which takes microseconds. Each caller is kept once, so that a loop costs no memory, and a place gets
 * its text when a report needs it. */
#include "sim.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdlib.h>
#include <string.h>

/* Of a stack, the frames of the simulator itself among them; and of the program's, those that are told. */
enum { MOST_FRAMES = 20, MOST_TOLD = 8, BUCKETS = 1024 };

struct caller {
  uint64_t hash;
  char *text;
  int count; /* 0: it was said */
  void *frames[MOST_FRAMES];
  struct caller *next;
};

static struct caller *callers[BUCKETS];

static uint64_t hash_of(const void *data, size_t size) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211u;
  return hash;
}

static struct caller *caller_new(uint64_t hash) {
  struct caller *c = fresh(sizeof *c), **head = &callers[hash % BUCKETS];
  c->hash = hash;
  c->next = *head;
  return *head = c;
}

static struct caller *said(const char *text) {
  const uint64_t hash = hash_of(text, strlen(text));
  struct caller *c = callers[hash % BUCKETS];
  while (c && (c->hash != hash || c->count || strcmp(c->text, text))) c = c->next;
  if (c) return c;
  c = caller_new(hash);
  c->text = strdup(text);
  if (!c->text) abort();
  return c;
}

static struct caller *seen(void) {
  void *frames[MOST_FRAMES] = {self()->from};
  if (!frames[0]) return NULL; /* a thread of the simulator */
  const int count = sim.options.stacks > 1 ? backtrace(frames, MOST_FRAMES) : 1;
  const size_t size = (size_t)count * sizeof *frames;
  const uint64_t hash = hash_of(frames, size);
  struct caller *c = callers[hash % BUCKETS];
  while (c && (c->hash != hash || c->count != count || memcmp(c->frames, frames, size))) c = c->next;
  if (c) return c;
  c = caller_new(hash);
  c->count = count;
  memcpy(c->frames, frames, size);
  return c;
}

static const char between[] = ", in ";

/* Where a library acts by itself, for one who has given memory back, it is that one. */
struct caller *caller_of_call(void) {
  if (!sim.options.stacks) return NULL;
  const char *text = self()->caller;
  if (text && strstr(text, between)) return said(text);
  struct caller *giver = giver_of_call();
  if (giver) return giver;
  return text ? said(text) : seen();
}

/* Of the name of a file: no line of a program is behind a call that one of these makes. */
static bool ends_program(const char *file) {
  static const char *const with[] = {"libc.so", "libffi", "libpython", "python"};
  for (size_t i = 0; i < sizeof with / sizeof *with; i++)
    if (!strncmp(file, with[i], strlen(with[i]))) return true;
  return false;
}

/* The place of the call, before the one that it returns to. */
static void write_frame(FILE *f, const void *address, const Dl_info *in, const char *file) {
  const uintptr_t from = (uintptr_t)(in->dli_sname ? in->dli_saddr : in->dli_fbase);
  fprintf(f, "%s(%s+0x%zx)", file, in->dli_sname ? in->dli_sname : "", (size_t)((uintptr_t)address - 1 - from));
}

/* "program(function+0x12) < program(main+0x34)", without the frames of the simulator itself and of the functions that
 * it called to get them. */
static char *text_of_stack(const struct caller *c) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  Dl_info here, in;
  if (!f || !dladdr(&sim, &here)) abort();
  int own = c->count, told = 0;
  while (own > 0 && (!dladdr(c->frames[own - 1], &in) || in.dli_fbase != here.dli_fbase)) own--;
  for (int i = own; i < c->count && told < MOST_TOLD && dladdr(c->frames[i], &in); i++) {
    const char *slash = strrchr(in.dli_fname, '/'), *file = slash ? slash + 1 : in.dli_fname;
    if (ends_program(file)) break;
    if (told++) fputs(" < ", f);
    write_frame(f, c->frames[i], &in, file);
  }
  fclose(f);
  return text;
}

const char *caller_text(struct caller *c) {
  if (!c) return NULL;
  if (!c->text) c->text = text_of_stack(c);
  return *c->text ? c->text : NULL;
}

/* As Go tells it: "main.load (load.go:12), in cdevice.CopyToDevice". */
const char *caller_library(const struct caller *c) {
  const char *in = c && !c->count ? strstr(c->text, between) : NULL;
  return in ? in + strlen(between) : NULL;
}
