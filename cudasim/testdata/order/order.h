/* The proof of the happens-before checker: programs that are correct, each beside
 * the same program with one wait left out. The correct one must never be reported,
 * the other one in every run of every schedule.
 *
 * A program depends on no timing: the calls of the host are in the same order in
 * every run, so that a missing wait is missing always. */
#pragma once

/* The driver API as the rules of the simulator declare it, and their checks. */
#include "../rules.h"

/* ---- programs ---- */

/* The symptom of a missing wait. */
enum proof {
  VIOLATION, /* a violation that names both calls */
  CHANGED,   /* a violation: the source of a copy changed while the copy was pending; lazy schedule */
  GARBAGE,   /* the program itself reads garbage; lazy schedule */
  NOTHING,   /* there is no wrong variant */
};

struct program {
  const char *name;
  enum proof proof;
  const char *calls[2]; /* that conflict, as the report names them */
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
/* A correct program that looks as if it were not. */
#define CORRECT(id, machine) PROGRAM(id, .proof = NOTHING, .options = machine)
/* The source that this call reads is overwritten by the host, which declares nothing. */
#define CHANGES(id, call, machine) PROGRAM(id, .proof = CHANGED, .calls = {call, "changed"}, .options = machine)
/* The host reads data that has not arrived, and declares nothing. */
#define READS_GARBAGE(id, machine) PROGRAM(id, .proof = GARBAGE, .options = machine)

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

/* ---- control of the simulator that rules.h does not declare ---- */

void cudasim_host_read(const void *address, size_t size);
void cudasim_host_write(void *address, size_t size);
void cudasim_drain(void);
void cudasim_forget_violations(void);
void cudasim_host_signal(const void *key);
void cudasim_host_wait(const void *key);
void cudasim_internal_begin(uintptr_t *keys, size_t count);
void cudasim_internal_end(void);
void cudasim_give_back(uintptr_t key);
void cudasim_forget(uintptr_t key);
uintptr_t cudasim_act(uintptr_t key);
void cudasim_read(uintptr_t address, size_t size, uintptr_t key);
void cudasim_publish(uintptr_t key);
void cudasim_keep(uintptr_t what, size_t size);
void cudasim_hand_out(uintptr_t what, size_t size);

/* ---- helpers; their objects are ended after the run ---- */

enum { N = 256 }; /* bytes of most memory */

void *new_pageable(size_t size);
void *new_registered(size_t size);
CUdeviceptr new_managed(size_t size);
CUdeviceptr new_pooled(CUstream stream); /* N bytes, allocated in this stream */
CUdeviceptr pooled(CUstream stream);     /* the same, but the program frees it */
CUcontext new_context(int ordinal);      /* current on this thread from then on */
void end_stream(CUstream stream);        /* before the end of the run */
void end_event(CUevent event);

/* Later work of `later` comes after all that `earlier` has now: record, wait. */
CUresult follow(CUstream later, CUstream earlier);

/* Ask until it is CUDA_SUCCESS, and answer that. */
CUresult poll_event(CUevent event);
CUresult poll_stream(CUstream stream);
CUresult poll_elapsed(CUevent start, CUevent end);

/* For host functions: sets an atomic_bool; waits for one, on any thread. */
void raise_flag(void *flag);
void await_flag(void *flag);

/* The right variant ends with this value in all N bytes: looked at after all is done. */
void expect(CUdeviceptr memory, unsigned char value);
void expect_host(const void *memory, unsigned char value);
