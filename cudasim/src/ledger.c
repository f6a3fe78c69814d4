/* The ledger: violations and live objects, in a file that another process reads after this one has
 * ended, however it did. Memory that is mapped shared outlives the process. Texts are written before
 * what says that they are there, in the order of instructions: a process that is killed has done all up to
 * one, and none after it. So only the compiler must keep that order, as it does around atomic words.
 * cudasim/internal/ledger reads it and knows the layout. */
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TEXT = 1 << 20, SLOTS = 1 << 14, GROUPS = 1 << 8 };

/* Of the slots, numbered from 1, the first are the references to primary contexts: two per device, of those
 * that are not kept and of those that are. An object that found no slot is counted in a group instead: its number
 * follows those of the slots. */
enum { NO_SLOT = 0, OF_DEVICES = 2 * MAX_DEVICES, BEYOND = SLOTS + 1 };

struct slot {
  _Atomic uint32_t used, kept;
  char text[LIVE_TEXT];
};

/* Live objects that differ in address and size alone: those of a loop leave room for the others. The last group has
 * no text: it counts all for which there is no other. */
struct group {
  _Atomic uint64_t count[2]; /* not kept, kept */
  char text[LIVE_TEXT];      /* of one of them */
};

static const char magic[] = "cudasim3";

static struct ledger {
  char magic[8];
  uint64_t process;
  char program[64];
  _Atomic uint64_t violations;
  _Atomic uint64_t times[MOST_VIOLATIONS]; /* of each kind */
  _Atomic uint64_t text_size;              /* of the texts of the kinds, each with its NUL */
  _Atomic uint64_t slots;                  /* that were ever used */
  char text[TEXT];
  struct slot slot[SLOTS];
  struct group group[GROUPS];
} *ledger; /* NULL: there is none */

static bool opened;
static int kinds; /* of violations, whose texts are in the ledger */
static uint32_t unused[SLOTS], unused_count;
static char *groups[GROUPS]; /* what their texts have in common */
static uint32_t group_count;

static int create(void) {
  char path[sizeof sim.options.ledger + 64];
  int fd, number = 0;
  do {
    snprintf(path, sizeof path, "%s/%ld-%d", sim.options.ledger, (long)getpid(), number++);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (fd < 0 && errno == EEXIST);
  return fd;
}

/* Sparse: what is not used takes no room. */
static void *map(int fd) {
  if (fd < 0 || ftruncate(fd, sizeof *ledger)) return MAP_FAILED;
  return mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

/* Once in each process, at the first call of the driver. */
void ledger_open(void) {
  if (opened || !*sim.options.ledger) return;
  opened = true;
  int fd = create();
  void *memory = map(fd);
  if (memory == MAP_FAILED)
    fprintf(stderr, "cudasim: the ledger cannot be written in %s: %s\n", sim.options.ledger, strerror(errno));
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) return;
  ledger = memory;
  ledger->process = (uint64_t)getpid();
  strncpy(ledger->program, program_invocation_short_name, sizeof ledger->program - 1);
  atomic_store(&ledger->slots, OF_DEVICES);
  memcpy(ledger->magic, magic, sizeof ledger->magic);
}

/* A forked child leaves its parent's, and opens its own at its first call. */
void ledger_leave(void) {
  if (ledger) munmap(ledger, sizeof *ledger);
  ledger = NULL;
  opened = false;
  kinds = 0;
  unused_count = 0;
  while (group_count) free(groups[--group_count]);
}

/* The texts are those of the first kinds: as many as there is room for. */
void ledger_violation(int kind, const char *text) {
  if (!ledger) return;
  const size_t at = atomic_load(&ledger->text_size), size = strlen(text) + 1;
  if (kind == kinds && size <= TEXT - at) {
    memcpy(ledger->text + at, text, size);
    kinds++;
    atomic_store(&ledger->text_size, at + size);
  }
  ledger_repeated(kind);
}

void ledger_repeated(int kind) {
  if (!ledger) return;
  if (kind >= 0) atomic_fetch_add(&ledger->times[kind], 1);
  atomic_fetch_add(&ledger->violations, 1);
}

void ledger_forget_violations(void) {
  if (!ledger) return;
  atomic_store(&ledger->violations, 0);
  atomic_store(&ledger->text_size, 0);
  for (int i = 0; i < MOST_VIOLATIONS; i++) atomic_store(&ledger->times[i], 0);
  kinds = 0;
}

static struct slot *slot_at(uint32_t number) { return &ledger->slot[number - 1]; }

static uint32_t find_group(const char text[LIVE_TEXT]) {
  char *common = text_kind(text, true);
  uint32_t g = 0;
  while (g < group_count && strcmp(groups[g], common)) g++;
  if (g < group_count || g == GROUPS - 1) {
    free(common);
    return g;
  }
  groups[group_count++] = common;
  strcpy(ledger->group[g].text, text);
  return g;
}

static struct group *group_of(const struct ledger_entry *e) { return &ledger->group[e->slot - BEYOND]; }

static uint32_t take_slot(const char text[LIVE_TEXT]) {
  if (unused_count) return unused[--unused_count];
  uint64_t used = atomic_load(&ledger->slots);
  if (used == SLOTS) return BEYOND + find_group(text);
  atomic_store(&ledger->slots, used + 1);
  return (uint32_t)used + 1;
}

/* After a fork, what the parent has made is not live here, and its slots are the parent's. */
static bool lists(void) { return ledger && !sim.forked; }

static void enter(struct ledger_entry *e, const char text[LIVE_TEXT]) {
  if (e->slot >= BEYOND) ledger_remove(e); /* the text may be that of another group now */
  if (!e->slot) e->slot = take_slot(text);
  if (e->slot >= BEYOND) {
    atomic_fetch_add(&group_of(e)->count[e->kept], 1);
    return;
  }
  struct slot *s = slot_at(e->slot);
  atomic_store(&s->used, 0);
  strcpy(s->text, text);
  atomic_store(&s->kept, e->kept);
  atomic_store(&s->used, 1);
}

void ledger_object(struct object *o) {
  if (!lists() || !object_of_program(o)) return;
  char text[LIVE_TEXT];
  object_text(o, text);
  enter(&o->entry, text);
}

void ledger_block(struct block *b) {
  if (!lists()) return;
  char text[LIVE_TEXT];
  block_text(b, text);
  enter(&b->entry, text);
}

void ledger_remove(struct ledger_entry *e) {
  if (!e->slot || !lists()) return;
  if (e->slot >= BEYOND) {
    atomic_fetch_sub(&group_of(e)->count[e->kept], 1);
  } else {
    atomic_store(&slot_at(e->slot)->used, 0);
    unused[unused_count++] = e->slot;
  }
  e->slot = NO_SLOT;
}

void ledger_keep(struct ledger_entry *e, bool kept) {
  bool before = e->kept;
  e->kept = kept;
  if (before == kept || !e->slot || !lists()) return;
  if (e->slot >= BEYOND) {
    atomic_fetch_add(&group_of(e)->count[kept], 1);
    atomic_fetch_sub(&group_of(e)->count[before], 1);
  } else {
    atomic_store(&slot_at(e->slot)->kept, kept);
  }
}

static void count_references(uint64_t references, int device, bool kept) {
  struct slot *s = &ledger->slot[2 * device + kept];
  atomic_store(&s->used, 0);
  if (!references) return;
  references_text(references, device, s->text);
  atomic_store(&s->kept, kept);
  atomic_store(&s->used, 1);
}

void ledger_references(int device) {
  if (!lists()) return;
  const struct device *d = &sim.devices[device];
  count_references(d->primary_refs - d->primary_kept, device, false);
  count_references(d->primary_kept, device, true);
}
