/* Owners export trees, and two threads of each release the parts, in no other order than that of the words that C and
 * Go share. Go's side is here in C. Where a word orders too little, the thread sanitizer reports a race, and a
 * processor that reorders, such as one of arm64, may end the program with a wrong content.
 *
 *   order ROUNDS   how many owners there are, one after the other, on each of two threads
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "../counts.h"
#include "../exports.h"

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static void fail(const char* condition, int line) {
  fprintf(stderr, "order.c:%d: not so: %s\n", line, condition);
  exit(1);
}

enum { OWNERS = 2, PARTS = 2, TREES = 60 /* of an owner */, LAST = 20 /* of these, which it does not wait for */ };

static uint64_t rounds;

/* The block of a tree with two children. */
struct tree {
  struct cdevice_v0_block head;
  struct ArrowArray children[PARTS];
  struct ArrowArray* pointers[PARTS];
  uint64_t content;
};

/* A thread that releases one struct of each tree, and the structs that it was sent. */
struct part {
  struct ArrowArray sent[TREES];
  _Atomic uint64_t count;    /* of those that were sent */
  _Atomic uint64_t released; /* relaxed: it orders nothing */
  uint64_t used, expected;   /* the end of the owner compares them */
};

struct owner {
  struct cdevice_v0_exports* exports;
  struct part parts[PARTS];
  uint64_t used, spare;
  atomic_bool ended;
};

/* What a handle names. */
struct value {
  void (*end)(void* of);
  void* of;
};

void cdevice_v0_go_release(uint64_t handle) {
  struct value* v = (struct value*)(uintptr_t)handle;
  v->end(v->of);
}

static void end_owner(void* of) {
  struct owner* o = of;
  CHECK(o->used == TREES);
  for (int i = 0; i < PARTS; i++) CHECK(o->parts[i].used == o->parts[i].expected);
  o->ended = true;
}

static void* release_parts(void* argument) {
  struct part* p = argument;
  for (uint64_t i = 0; i < TREES; i++) {
    while (p->count <= i) sched_yield();
    if (p->sent[i].release) {
      CHECK(((const struct tree*)p->sent[i].private_data)->content == i);
      p->used++;
      p->sent[i].release(&p->sent[i]);
    }
    atomic_store_explicit(&p->released, i + 1, memory_order_relaxed);
  }
  return NULL;
}

/* As Exports.Take does it. */
static struct tree* take(struct owner* o) {
  uint64_t was = __atomic_load_n(&o->exports->spare, __ATOMIC_SEQ_CST);
  uint64_t now = (was + CDEVICE_V0_TAKE) | CDEVICE_V0_TAKEN | CDEVICE_V0_LISTED;
  if (!(was & CDEVICE_V0_TAKEN) &&
      __atomic_compare_exchange_n(&o->exports->spare, &was, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    o->spare++;
    return (struct tree*)(o->exports + 1);
  }
  return (struct tree*)cdevice_v0_exports_block((uint64_t*)o->exports, sizeof(struct tree));
}

static struct ArrowArray array(struct tree* t) {
  return (struct ArrowArray){.release = cdevice_v0_release_array, .private_data = t};
}

static void put(struct part* p, uint64_t number, struct ArrowArray a) {
  p->sent[number] = a;
  p->expected++;
}

/* Both threads release a part: the first child is moved out, and the second one stays in the root. */
static void split(struct owner* o, struct tree* t, uint64_t number) {
  struct ArrowArray root = array(t);
  t->head.live = PARTS + 1;
  for (int i = 0; i < PARTS; i++) {
    t->children[i] = array(t);
    t->pointers[i] = &t->children[i];
  }
  put(&o->parts[0], number, t->children[0]);
  t->children[0].release = NULL;
  root.n_children = PARTS;
  root.children = t->pointers;
  put(&o->parts[1], number, root);
}

/* Every second tree is of one thread, by turns. */
static void send(struct owner* o, struct tree* t, uint64_t number) {
  t->content = number;
  o->used++;
  if (number % 2) {
    t->head.live = 1;
    put(&o->parts[number / 2 % PARTS], number, array(t));
  } else {
    split(o, t, number);
  }
  for (int i = 0; i < PARTS; i++) o->parts[i].count = number + 1;
}

static uint64_t released(struct part* p) { return atomic_load_explicit(&p->released, memory_order_relaxed); }

/* Then the spare block is there, as far as a thread can know by what orders nothing. */
static void await(struct owner* o, uint64_t number) {
  for (int i = 0; i < PARTS; i++)
    while (released(&o->parts[i]) < number) sched_yield();
}

/* As Exports.Close and Exports.Free do it. */
static void close_owner(struct owner* o) {
  uint64_t* exports = (uint64_t*)o->exports;
  if (__atomic_fetch_or(&o->exports->spare, CDEVICE_V0_CLOSED, __ATOMIC_SEQ_CST) & CDEVICE_V0_TAKEN) return;
  if (__atomic_fetch_sub(&o->exports->refs, 1, __ATOMIC_SEQ_CST) != 1) return;
  end_owner(o);
  cdevice_v0_exports_free(exports);
}

static void export_all(struct owner* o) {
  struct value value = {end_owner, o};
  pthread_t threads[PARTS];
  o->exports = cdevice_v0_exports_new(sizeof(struct tree));
  o->exports->handle = (uint64_t)(uintptr_t)&value;
  for (int i = 0; i < PARTS; i++) pthread_create(&threads[i], NULL, release_parts, &o->parts[i]);
  send(o, (struct tree*)(o->exports + 1), 0);
  for (uint64_t i = 1; i < TREES; i++) {
    if (i % 8 && i < TREES - LAST) await(o, i);
    send(o, take(o), i);
  }
  close_owner(o);
  for (int i = 0; i < PARTS; i++) pthread_join(threads[i], NULL);
  CHECK(o->ended);
  CHECK(o->spare > 0);
}

static void* own(void* unused) {
  for (uint64_t i = 0; i < rounds; i++) {
    struct owner* o = calloc(1, sizeof *o);
    export_all(o);
    free(o);
  }
  return unused;
}

/* A thread that sees by the counts that a tree has ended sees what its end did. */
static struct {
  struct tree* _Atomic next;
  uint64_t effect;
} counted;

static void has_effect(void* of) { counted.effect = *(uint64_t*)of; }

static void* release_each(void* unused) {
  for (uint64_t i = 0; i < TREES * rounds; i++) {
    struct tree* t;
    while (!(t = atomic_exchange(&counted.next, NULL))) sched_yield();
    struct ArrowArray root = array(t);
    root.release(&root);
  }
  return unused;
}

static void count_ends(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, release_each, NULL);
  for (uint64_t i = 0; i < TREES * rounds; i++) {
    struct value value = {has_effect, &i};
    struct tree* t = (struct tree*)cdevice_v0_block_new(sizeof *t, CDEVICE_V0_TREES);
    t->head.live = 1;
    t->head.handle = (uint64_t)(uintptr_t)&value;
    counted.next = t;
    while (cdevice_v0_counted(CDEVICE_V0_TREES)) sched_yield();
    CHECK(counted.effect == i);
    counted.effect = UINT64_MAX;
  }
  pthread_join(thread, NULL);
}

int main(int count, char** arguments) {
  pthread_t threads[OWNERS];
  rounds = count > 1 ? strtoull(arguments[1], NULL, 10) : 50;
  count_ends();
  for (int i = 0; i < OWNERS; i++) pthread_create(&threads[i], NULL, own, NULL);
  for (int i = 0; i < OWNERS; i++) pthread_join(threads[i], NULL);
  CHECK(cdevice_v0_counted(CDEVICE_V0_OWNERS) == 0);
  return 0;
}
