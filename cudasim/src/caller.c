/* Who makes a call: the caller says it, or it is the place in C that the call returns to, with stacks=2 those of its
 * callers, too, which takes microseconds. Each caller is kept once, so that a loop costs no memory.
 *
 * A place gets its text when it is first seen, before the call takes the lock of the machine: the loader, which knows
 * the text, has a lock of its own, and a thread that has it may be waiting for ours, as the constructor of a library
 * may call the driver. */
#include "sim.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <regex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Of a stack, the frames of the simulator itself among them; and of the program's, those that are told. */
enum { MOST_FRAMES = 20, MOST_TOLD = 8, BUCKETS = 1024 };

struct caller {
  uint64_t hash;
  char *text; /* "": there is no place in the program */
  int count;  /* 0: it was said */
  void *frames[MOST_FRAMES];
  struct caller *next;
};

/* Without a lock: callers are added at the head, and never removed. Threads that see one for the first time at once
 * may add it twice. */
static struct caller *_Atomic callers[BUCKETS];

static struct caller *caller_add(uint64_t hash, char *text, void *const *frames, int count) {
  struct caller *c = fresh(sizeof *c), *_Atomic *head = &callers[hash % BUCKETS];
  if (!text) abort();
  *c = (struct caller){.hash = hash, .text = text, .count = count, .next = atomic_load(head)};
  if (count) memcpy(c->frames, frames, (size_t)count * sizeof *frames);
  while (!atomic_compare_exchange_weak(head, &c->next, c)) continue;
  return c;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

static struct caller *said(const char *text) {
  uint64_t hash = 0;
  for (const char *t = text; *t; t++) hash = mix(hash, (unsigned char)*t);
  struct caller *c = atomic_load_explicit(&callers[hash % BUCKETS], memory_order_acquire);
  while (c && (c->hash != hash || c->count || strcmp(c->text, text))) c = c->next;
  return c ? c : caller_add(hash, strdup(text), NULL, 0);
}

/* Of the name of a file: no line of a program is behind a call that one of these makes. */
static bool ends_program(const char *file) {
  static const char names[] = "^(python[0-9.]*[dt]?(-dbg)?|lib(c|ffi(-[0-9a-f]+)?|python[0-9.]+[dt]*)\\.so[0-9.]*)$";
  regex_t pattern;
  if (regcomp(&pattern, names, REG_EXTENDED | REG_NOSUB)) abort();
  const bool ends = !regexec(&pattern, file, 0, NULL, 0);
  regfree(&pattern);
  return ends;
}

/* The place of the call, before the one that it returns to: in the function, or as addr2line takes it. The name of a
 * function may be longer than the ledger has room for. */
static void write_frame(FILE *f, const void *address, const Dl_info *in, const struct link_map *map, const char *file) {
  enum { MOST = 120 };
  const char *name = in->dli_sname ? in->dli_sname : "", *cut = strlen(name) > MOST ? "..." : "";
  const uintptr_t from = in->dli_sname ? (uintptr_t)in->dli_saddr : (uintptr_t)map->l_addr;
  fprintf(f, "%s(%.*s%s+0x%zx)", file, MOST, name, cut, (size_t)((uintptr_t)address - 1 - from));
}

/* "program(function+0x12) < program(main+0x34)", without the frames of the simulator itself and of the functions that
 * it called to get them. */
static char *text_of_stack(void *const *frames, int count) {
  char *text = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&text, &size);
  Dl_info here, in;
  struct link_map *map;
  if (!f || !dladdr(&sim, &here)) abort();
  int own = count, told = 0;
  while (own > 0 && (!dladdr(frames[own - 1], &in) || in.dli_fbase != here.dli_fbase)) own--;
  for (int i = own; i < count && told < MOST_TOLD && dladdr1(frames[i], &in, (void **)&map, RTLD_DL_LINKMAP); i++) {
    const char *slash = strrchr(in.dli_fname, '/'), *file = slash ? slash + 1 : in.dli_fname;
    if (ends_program(file)) break;
    if (told++) fputs(" < ", f);
    write_frame(f, frames[i], &in, map, file);
  }
  fclose(f);
  return text;
}

static bool is_stack(const struct caller *c, uint64_t hash, void *const *frames, int count) {
  if (c->hash != hash || c->count != count) return false;
  for (int i = 0; i < count; i++)
    if (c->frames[i] != frames[i]) return false;
  return true;
}

struct caller *caller_seen(void *from) {
  options_settle();
  if (!sim.options.stacks) return NULL;
  void *frames[MOST_FRAMES];
  frames[0] = from;
  const int count = sim.options.stacks > 1 ? backtrace(frames, MOST_FRAMES) : 1;
  uint64_t hash = 0;
  for (int i = 0; i < count; i++) hash = mix(hash, (uintptr_t)frames[i]);
  struct caller *c = atomic_load_explicit(&callers[hash % BUCKETS], memory_order_acquire);
  while (c && !is_stack(c, hash, frames, count)) c = c->next;
  return c ? c : caller_add(hash, text_of_stack(frames, count), frames, count);
}

static const char between[] = ", in ";

/* Where a library acts by itself, for one who has given memory back, it is that one. */
struct caller *caller_of_call(void) {
  if (!sim.options.stacks) return NULL;
  const char *text = self()->caller;
  if (text && strstr(text, between)) return said(text);
  struct caller *giver = giver_of_call();
  if (giver) return giver;
  return text ? said(text) : self()->place;
}

const char *caller_text(const struct caller *c) { return c && *c->text ? c->text : NULL; }

/* As Go tells it: "main.load (load.go:12), in cdevice.CopyToDevice". */
const char *caller_library(const struct caller *c) {
  const char *in = c && !c->count ? strstr(c->text, between) : NULL;
  return in ? in + strlen(between) : NULL;
}

bool caller_has_memory(const struct caller *c) {
  static const char with[] = "memory/";
  const char *in = caller_library(c);
  return in && !strncmp(in, with, strlen(with));
}
