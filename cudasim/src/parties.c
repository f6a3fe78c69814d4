/* What the parties of the host know: the program as a whole, or each of its threads; and a library about
 * memory that it keeps for the next user. What a library learns for itself, by queries that the program
 * did not ask for, depends on time. So the program does not know it, and a wait that it lacks is missing
 * in every run. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- knowledge about memory that a library keeps, by key ---- */

/* The work of a context that a library promised to wait for, when it did. */
struct cover {
  uint64_t context;
  struct marks marks;
  struct cover *next;
};

struct keeper {
  uintptr_t key;
  struct cover *covers;
  struct host host;
  struct caller *giver;         /* who gave the memory back, if it is known */
  struct keeper *next;          /* of the bucket */
  struct keeper *older, *newer; /* of all */
};

enum { BUCKETS = 1024 };
static struct keeper *buckets[BUCKETS], *oldest, *newest;

static struct keeper **bucket(uintptr_t key) { return &buckets[key / 64 % BUCKETS]; }

static struct keeper *keeper_find(uintptr_t key) {
  struct keeper *k = *bucket(key);
  while (k && k->key != key) k = k->next;
  return k;
}

static struct host *program_of(const struct thread *t) { return t->host ? t->host : &sim.host; }

/* What is known to the thread about memory that it gives back: of a library that acts on what was waited for, that
 * alone. What the program learns later does not count, for when that is depends on time. */
static const struct host *giver(void) {
  const struct thread *t = self();
  const struct keeper *k = t->acts_on ? keeper_find(t->acts_on) : NULL;
  return k ? &k->host : program_of(t);
}

static struct keeper *keeper_new(uintptr_t key) {
  const struct host *h = giver();
  struct keeper *k = fresh(sizeof *k), **head = bucket(key);
  *k = (struct keeper){.key = key, .host = {clock_share(h->clock), h->slot, h->epoch}, .next = *head, .older = newest};
  *head = k;
  *(newest ? &newest->newer : &oldest) = k;
  return newest = k;
}

/* The last one who was not a library that acts on what it has waited for. */
static void remember_giver(struct keeper *k) {
  const struct keeper *acted_on = keeper_find(self()->acts_on);
  if (k != acted_on) k->giver = acted_on ? acted_on->giver : caller_of_call();
}

/* Of the memory that a library acts on, or NULL. */
struct caller *giver_of_call(void) {
  const struct thread *t = self();
  const struct keeper *k = keeper_find(t->internal && t->key_count ? t->keys[0] : t->acts_on);
  return k ? k->giver : NULL;
}

static struct keeper *keeper_of(uintptr_t key) {
  struct keeper *k = keeper_find(key);
  return k ? k : keeper_new(key);
}

void keeper_forget(uintptr_t key) {
  struct keeper *k = keeper_find(key), **at = bucket(key);
  if (!k) return;
  while (*at != k) at = &(*at)->next;
  *at = k->next;
  *(k->older ? &k->older->newer : &oldest) = k->newer;
  *(k->newer ? &k->newer->older : &newest) = k->older;
  clock_drop(k->host.clock);
  for (struct cover *c = k->covers, *next; c; c = next) {
    next = c->next;
    marks_free(&c->marks);
    free(c);
  }
  free(k);
}

bool keepers_know(const struct access *a) {
  for (const struct keeper *k = oldest; k; k = k->newer)
    if (!host_knows(&k->host, a)) return false;
  return true;
}

static void learn(struct host *h, const struct host *other) {
  clock_join(&h->clock, other->clock);
  if (other->slot == h->slot) {
    if (h->epoch < other->epoch) h->epoch = other->epoch;
  } else if (other->epoch > clock_at(h->clock, other->slot)) {
    clock_set(&h->clock, other->slot, other->epoch);
  }
}

/* ---- the calling thread ---- */

/* Who acts on what is known for a key knows what the program knows, too. */
struct host *host_of_call(void) {
  const struct thread *t = self();
  static struct host both;
  const struct keeper *k = t->acts_on ? keeper_find(t->acts_on) : NULL;
  if (t->internal && t->key_count) return &keeper_of(t->keys[0])->host;
  if (!k) return program_of(t);
  clock_drop(both.clock);
  both = *program_of(t);
  clock_share(both.clock);
  clock_join(&both.clock, k->host.clock);
  return &both;
}

/* What the calling party knows at this moment, which no later one equals. Reports whether it is a library
 * that acts for itself. */
bool host_moment(struct clock **known, int *slot, uint64_t *epoch) {
  const bool internal = self()->internal;
  const struct host *h = host_of_call();
  *known = clock_share(h->clock);
  *slot = h->slot;
  *epoch = h->epoch;
  if (!internal) program_of(self())->epoch++;
  return internal;
}

bool host_knows(const struct host *h, const struct access *a) {
  return clock_at(h->clock, a->slot) >= a->epoch || (a->slot == h->slot && a->epoch <= h->epoch);
}

void host_learns_clock(struct clock *c) {
  const struct thread *t = self();
  if (!t->internal) {
    clock_join(&program_of(t)->clock, c);
    return;
  }
  for (size_t i = 0; i < t->key_count; i++) clock_join(&keeper_of(t->keys[i])->host.clock, c);
}

void host_learns_mark(const struct mark *m) {
  if (m) host_learns_clock(m->clock);
}

/* A library learns of a context that was waited for no more than it promised to wait for: what was queued
 * since then is done, too, by chance. */
void host_learns_context(struct marks *marks, uint64_t context) {
  const struct thread *t = self();
  for (size_t i = 0; t->internal && i < t->key_count; i++) {
    struct keeper *k = keeper_of(t->keys[i]);
    const struct cover *c = k->covers;
    while (c && c->context != context) c = c->next;
    const struct marks *learned = c ? &c->marks : marks;
    for (int m = 0; m < learned->count; m++) clock_join(&k->host.clock, learned->at[m]->clock);
  }
  if (t->internal)
    marks_free(marks);
  else
    host_learns(marks);
}

void host_learns(struct marks *marks) {
  for (int i = 0; i < marks->count; i++) host_learns_mark(marks->at[i]);
  marks_free(marks);
}

/* ---- threads, with the option threads ---- */

static void learn_from(struct host *h, struct host *other) {
  if (!other || h == other) return;
  learn(h, other);
  other->epoch++; /* what it does from now on is not known */
}

/* The call that made the thread is not seen, nor is the end of a wait for it: so a new thread knows what
 * all others know, and all know what it knew when it ended. */
void thread_begins(struct thread *t) {
  if (!sim.options.threads || t->host) return;
  t->host = fresh(sizeof *t->host);
  t->host->slot = order_slot_of_thread();
  t->host->epoch = 1;
  learn_from(t->host, &sim.host);
  for (struct thread *other = sim.threads; other; other = other->next) learn_from(t->host, other->host);
}

void thread_ends(struct thread *t) {
  if (!t->host) return;
  learn_from(&sim.host, t->host);
  for (struct thread *other = sim.threads; other; other = other->next)
    if (other->host) learn_from(other->host, t->host);
}

void cudasim_host_signal(const void *key) {
  sim_lock();
  if (sim.options.threads) learn_from(&keeper_of((uintptr_t)key)->host, program_of(self()));
  sim_unlock();
}

void cudasim_host_wait(const void *key) {
  sim_lock();
  if (sim.options.threads) clock_join(&program_of(self())->clock, keeper_of((uintptr_t)key)->host.clock);
  sim_unlock();
}

/* ---- libraries ---- */

void cudasim_cover(uintptr_t key, void *context) {
  sim_lock();
  struct context *c = object_find(context, CONTEXT);
  if (c) {
    struct cover *cover = fresh(sizeof *cover);
    struct keeper *k = keeper_of(key);
    *cover = (struct cover){.context = c->id, .next = k->covers};
    k->covers = cover;
    marks_of_context(&cover->marks, c);
  }
  sim_unlock();
}

void cudasim_internal_begin(uintptr_t *keys, size_t count) {
  sim_lock();
  struct thread *t = self();
  t->internal = true;
  t->keys = keys;
  t->key_count = count;
  sim_unlock();
}

void cudasim_internal_end(void) {
  sim_lock();
  struct thread *t = self();
  t->internal = false;
  t->keys = NULL;
  t->key_count = 0;
  sim_unlock();
}

/* Memory that ends as soon as its work has is no leak. */
void cudasim_give_back(uintptr_t key) {
  sim_lock();
  struct keeper *k = keeper_of(key);
  learn(&k->host, giver());
  remember_giver(k);
  struct block *b = block_at(key);
  if (b && b->address == key && !b->kept_bytes) block_keep(b, true);
  sim_unlock();
}

void cudasim_publish(uintptr_t key) {
  sim_lock();
  const struct thread *t = self();
  const struct keeper *k = keeper_find(key ? key : t->acts_on);
  if (k) clock_join(&program_of(t)->clock, k->host.clock);
  sim_unlock();
}

uintptr_t cudasim_act(uintptr_t key) {
  sim_lock();
  struct thread *t = self();
  const uintptr_t before = t->acts_on;
  const struct keeper *k = keeper_find(before);
  if (k && key) learn(&keeper_of(key)->host, &k->host);
  t->acts_on = key;
  sim_unlock();
  return before;
}

void cudasim_forget(uintptr_t key) {
  sim_lock();
  keeper_forget(key);
  sim_unlock();
}

static void handle_keep(uintptr_t handle, bool kept) {
  static const enum kind kinds[] = {STREAM, EVENT, POOL};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    struct object *o = object_find((const void *)handle, kinds[i]);
    if (o) object_keep(o, kept);
    if (!o || kept) continue;
    o->maker = caller_of_call();
    ledger_object(o);
  }
  const struct context *c = object_find((const void *)handle, CONTEXT);
  if (c && c->primary && kept) primary_keep(c->device, sim.devices[c->device].primary_kept + 1);
}

void cudasim_keep(uintptr_t what, size_t size) {
  sim_lock();
  struct block *b = size ? block_at(what) : NULL;
  const struct keeper *k = b ? keeper_of(what) : NULL;
  if (b) access_keep(b, what, size, &k->host, k->giver ? k->giver : caller_of_call());
  if (!size) handle_keep(what, true);
  keeper_forget(what);
  sim_unlock();
}

/* The key goes on: what it knows, and who gave the memory back, is asked for when the driver frees it. */
void cudasim_free_later(uintptr_t address) {
  sim_lock();
  struct block *b = block_at(address);
  if (b && b->address == address && ipc_release(b)) {
    const struct keeper *k = keeper_of(address);
    access_keep(b, address, b->size, &k->host, k->giver ? k->giver : caller_of_call());
  }
  sim_unlock();
}

void cudasim_read(uintptr_t address, size_t size, uintptr_t key) {
  sim_lock();
  struct block *b = block_at(address);
  if (b && size <= b->size - (address - b->address)) access_done(b, address, size, &keeper_of(key)->host);
  sim_unlock();
}

static void stream_hand_out(struct stream *s) {
  if (!s || s->done < s->queued) return;
  order_stream_renew(s);
  label_drop(s->label);
  s->label = label_of(s, NULL);
}

/* Which is complete: as if it had never been recorded. */
static void event_hand_out(struct event *e) {
  if (!e || point_pending(e->record)) return;
  point_set(&e->record, NULL, 0);
  mark_drop(e->mark);
  e->mark = NULL;
}

void cudasim_hand_out(uintptr_t what, size_t size) {
  sim_lock();
  struct block *b = size ? block_at(what) : NULL;
  if (b) access_hand_out(b, what, size);
  if (!size) handle_keep(what, false);
  if (!size) stream_hand_out(object_find((const void *)what, STREAM));
  if (!size) event_hand_out(object_find((const void *)what, EVENT));
  sim_unlock();
}

int cudasim_wants_callers(void) {
  options_settle();
  return sim.options.stacks != 0;
}

void cudasim_caller(const char *text) {
  sim_lock();
  struct thread *t = self();
  free(t->caller);
  t->caller = text ? strdup(text) : NULL;
  sim_unlock();
}
