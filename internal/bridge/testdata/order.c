/* Exports are made on one thread, and two others release their parts, in no other order than that of the words
 * that C and Go share. Go's side is here in C. Where a word orders too little, the thread sanitizer reports a race, and
 * a processor that reorders, such as one of arm64, may end the program with a wrong content.
 *
 *   order ROUNDS   how often two threads make so many exports each
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "../bridge.h"

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static void fail(const char* condition, int line) {
  fprintf(stderr, "order.c:%d: not so: %s\n", line, condition);
  exit(1);
}

enum { MAKERS = 2, PARTS = 2, TREES = 60 };

/* The block of a tree with two children. */
struct tree {
  struct cdevice_v0_block head;
  struct ArrowArray children[PARTS];
  struct ArrowArray* pointers[PARTS];
  uint64_t content;
};

/* A thread that releases one struct of each tree, and the structs that it was sent. */
struct part {
  int number;
  struct ArrowArray sent[TREES];
  _Atomic uint64_t count; /* of those that were sent */
};

/* What a handle names: what the parts have used, before their releases. */
struct value {
  uint64_t used[PARTS];
  uint64_t expected;
};

static _Atomic uint64_t ends;

void cdevice_v0_go_release(uint64_t handle) { CHECK(handle == 0); }

void cdevice_v0_go_export_ended(uint64_t handle) {
  struct value* v = (struct value*)(uintptr_t)handle;
  for (int i = 0; i < PARTS; i++) CHECK(v->used[i] == v->expected);
  free(v);
  atomic_fetch_add_explicit(&ends, 1, memory_order_relaxed);
}

static struct tree* export_one(uint64_t content) {
  struct value* v = calloc(1, sizeof *v);
  struct tree* t = (struct tree*)cdevice_v0_block_new(sizeof *t);
  v->expected = content;
  t->head.handle = (uint64_t)(uintptr_t)v;
  t->content = content;
  return t;
}

static void* release_parts(void* argument) {
  struct part* p = argument;
  for (uint64_t i = 0; i < TREES; i++) {
    while (p->count <= i) sched_yield();
    struct tree* t = p->sent[i].private_data;
    CHECK(t->content == i + 1);
    ((struct value*)(uintptr_t)t->head.handle)->used[p->number] = t->content;
    p->sent[i].release(&p->sent[i]);
  }
  return NULL;
}

/* Both threads release a part: the first child is moved out, and the second one stays in the root. */
static void send(struct part* parts, struct tree* t, uint64_t number) {
  struct ArrowArray root = {.release = cdevice_v0_release_array, .private_data = t};
  t->head.live = PARTS + 1;
  for (int i = 0; i < PARTS; i++) {
    t->children[i] = root;
    t->pointers[i] = &t->children[i];
  }
  parts[0].sent[number] = t->children[0];
  t->children[0].release = NULL;
  root.n_children = PARTS;
  root.children = t->pointers;
  parts[1].sent[number] = root;
  for (int i = 0; i < PARTS; i++) parts[i].count = number + 1;
}

static void export_all(void) {
  struct part* parts = calloc(PARTS, sizeof *parts);
  pthread_t threads[PARTS];
  for (int i = 0; i < PARTS; i++) {
    parts[i].number = i;
    pthread_create(&threads[i], NULL, release_parts, &parts[i]);
  }
  for (uint64_t i = 0; i < TREES; i++) send(parts, export_one(i + 1), i);
  for (int i = 0; i < PARTS; i++) pthread_join(threads[i], NULL);
  free(parts);
}

static void* make(void* rounds) {
  for (uint64_t i = 0; i < *(uint64_t*)rounds; i++) export_all();
  return NULL;
}

int main(int count, char** arguments) {
  pthread_t threads[MAKERS];
  uint64_t rounds = count > 1 ? strtoull(arguments[1], NULL, 10) : 50;
  for (int i = 0; i < MAKERS; i++) pthread_create(&threads[i], NULL, make, &rounds);
  for (int i = 0; i < MAKERS; i++) pthread_join(threads[i], NULL);
  CHECK(ends == MAKERS * rounds * TREES);
  return 0;
}
