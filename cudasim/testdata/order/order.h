/* The proof of the happens-before checker: programs that are correct, each beside
 * the same program with one wait left out. The correct one must never be reported,
 * the other one in every run of every schedule.
 *
 * A program depends on no timing: the calls of the host are in the same order in
 * every run, so that a missing wait is missing always. */
#pragma once

#include "../simulator.h"

/* ---- programs ---- */

/* The symptom of a missing wait. */
enum proof {
  VIOLATION, /* a violation that names both calls */
  CHANGED,   /* a violation: the source of a copy changed while the copy was pending; lazy schedule */
  GARBAGE,   /* the program itself reads garbage; lazy schedule */
  HELD_UP,   /* a call waits for work that is held, and returns when that is let go */
  FAILURE,   /* a call fails */
  NOTHING,   /* there is no wrong variant */
};

struct program {
  const char *name;
  enum proof proof;
  const char *calls[2]; /* that conflict, as the report names them; HELD_UP, FAILURE: the one */
  const char *options;  /* of the machine, besides the schedule; pageable_async=* is both 0 and 1 */
  void (*run)(void);
  struct program *next;
};

void add_program(struct program *program);

#define PROGRAM(id, ...)                                                   \
  static void id(void);                                                    \
  __attribute__((constructor)) static void add_##id(void) {                \
    static struct program program = {.name = #id, .run = id, __VA_ARGS__}; \
    add_program(&program);                                                 \
  }                                                                        \
  static void id(void)

/* PAIR(name, first call, second call, options) { ... } */
#define PAIR(id, first, second, machine) PROGRAM(id, .proof = VIOLATION, .calls = {first, second}, .options = machine)
/* Fills m in one stream and copies it in another one: the block is what is between. */
#define FILL_AND_COPY(id, writer, reader)                \
  static void between_##id(void);                        \
  PAIR(id, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") { \
    OK(cuMemsetD8Async(m, 7, N, writer));                \
    between_##id();                                      \
    OK(cuMemcpyDtoDAsync_v2(n, m, N, reader));           \
    expect(n, 7);                                        \
  }                                                      \
  static void between_##id(void)
/* A correct program that looks as if it were not. */
#define CORRECT(id, machine) PROGRAM(id, .proof = NOTHING, .options = machine)
/* The source that this call reads is overwritten by the host, which declares nothing. */
#define CHANGES(id, call, machine) PROGRAM(id, .proof = CHANGED, .calls = {call, "changed"}, .options = machine)
/* The host reads data that has not arrived, and declares nothing. */
#define READS_GARBAGE(id, machine) PROGRAM(id, .proof = GARBAGE, .options = machine)
/* A call that waits in the wrong variant for what the program holds; no call of the right one does. */
#define STANDS_STILL(id, call, machine) PROGRAM(id, .proof = HELD_UP, .calls = {call}, .options = machine)
/* A call that fails in the wrong variant, which goes on; no call of the right one does. */
#define FAILS(id, call, machine) PROGRAM(id, .proof = FAILURE, .calls = {call}, .options = machine)

/* Where the variants differ: at one marked place. */
extern bool wrong;
void mark(void);

/* A wait, which the wrong variant leaves out. */
#define WAIT(call)        \
  do {                    \
    mark();               \
    if (!wrong) OK(call); \
  } while (0)
/* A value that one variant has and not the other. */
#define PICK(in_right, in_wrong) (mark(), wrong ? (in_wrong) : (in_right))
/* A call that the variants make at different places: one mark for both. */
#define RIGHT(call)       \
  do {                    \
    mark();               \
    if (!wrong) OK(call); \
  } while (0)
#define WRONG(call)      \
  do {                   \
    if (wrong) OK(call); \
  } while (0)

/* ---- helpers ---- */

unsigned char *new_ones(size_t size); /* page-locked, all 1, as p and q are, and the following */
void *new_pageable(size_t size);
void *new_registered(size_t size);
CUdeviceptr new_pooled(CUstream stream); /* N bytes, allocated in this stream */
CUcontext new_context(int ordinal);      /* current on this thread from then on */

/* Later work of `later` comes after all that `earlier` has now: record, wait. */
CUresult follow(CUstream later, CUstream earlier);

/* Ask until it is CUDA_SUCCESS, and answer that. */
CUresult poll_event(CUevent event);
CUresult poll_stream(CUstream stream);
CUresult poll_elapsed(CUevent start, CUevent end);

/* Between the two, a host function holds the stream. In the wrong variant a watchdog ends that, too, a while after the
 * mark. */
void hold(CUstream stream);
void let_go(void);

/* For host functions: sets an atomic_bool; waits for one, on any thread. This one is false when a program begins. */
extern atomic_bool flag;
void raise_flag(void *flag);
void await_flag(void *flag);

/* The right variant ends with this value in all N bytes: looked at after all is done. */
void expect(CUdeviceptr memory, unsigned char value);
void expect_host(const void *memory, unsigned char value);
