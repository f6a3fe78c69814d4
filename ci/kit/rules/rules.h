/* The rules of the CUDA driver that cudasim implements, each a function that a real driver runs as well: declarations
 * of the driver API manual that a program can observe.
 *
 * Nothing of the simulator is used here but its declarations, and its report where the driver has one. Pending work is
 * made by host functions that wait at a gate, so that no result depends on time. */
#pragma once

#define CUDASIM_13 /* the names of CUDA 13 too; a driver that lacks one skips its rules */
#include "../../../cudasim/src/cuda_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rules ---- */

/* What a rule rests on. */
enum basis {
  MANUAL,  /* the manual says so */
  SEEN,    /* drivers were seen to do so; the manual is silent */
  READING, /* the simulator's reading of a manual that leaves it open */
};

/* What a device or the driver must have for a rule; without it, the rule is skipped. */
enum {
  TWO = 1,          /* two devices */
  PEERS = 2,        /* two devices with peer access */
  POOLS = 4,        /* stream-ordered allocation */
  MANAGED = 8,      /* managed memory */
  CONCURRENT = 16,  /* managed memory that the host may touch while the device works */
  NO_PAGEABLE = 32, /* the device does not reach pageable memory by itself */
  REGISTER = 64,    /* page-locking of memory that exists */
  IPC = 128,        /* memory and events of other processes */
  PAGEABLE = 256,   /* the device reaches pageable memory by itself */
  COHERENT = 512,   /* it does so by the page tables of the host */
};

extern const char* const basis_words[];

struct rule {
  const char *name, *group;
  enum basis basis;
  const char* manual;  /* the rule in a sentence */
  unsigned needs;      /* of the enumeration above */
  bool alone;          /* in a process of its own: it may end the process, or leave an error for good */
  bool bare;           /* alone, and without initialisation and context */
  const char* options; /* of the simulator, beyond those that it runs with; alone */
  bool violates;       /* the simulator reports violations; otherwise none */
  bool peer_violates;  /* the same of the other process */
  bool races;          /* copies really race, which the thread sanitizer rightly reports */
  const char*
      driver; /* what drivers do, where the simulator is stricter on purpose; a verb: the rule is for it alone */
  void (*peer)(void); /* for another process, which the rule starts */
  void (*check)(void);
};

void add_rule(const struct rule* rule);

/* RULE(name, basis, sentence, further fields) { ... }; the file defines GROUP. */
#define RULE(id, ...)                                                       \
  static void id(void);                                                     \
  __attribute__((constructor)) static void add_##id(void) {                 \
    static const struct rule rule = {#id, GROUP, __VA_ARGS__, .check = id}; \
    add_rule(&rule);                                                        \
  }                                                                         \
  static void id(void)

/* ---- checks ---- */

/* A difference between rule and driver; the rule goes on. */
void differs(const char* format, ...) __attribute__((format(printf, 1, 2)));
/* The rule cannot go on: it has failed, or is skipped. */
_Noreturn void stop(const char* format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void skip(const char* format, ...) __attribute__((format(printf, 1, 2)));
const char* error_name(CUresult result);

void check_result(const char* call, CUresult got, CUresult want, CUresult or_this);
void check_success(const char* call, CUresult got);
void check_refused(const char* call, CUresult got);
void check_same(const char* what, long long got, long long want);

#define IS(call, want) check_result(#call, call, want, want)
#define IS_ONE_OF(call, want, other) check_result(#call, call, want, other)
#define OK(call) check_success(#call, call) /* what the rest of the rule needs */
#define REFUSED(call) check_refused(#call, call)
#define SAME(got, want) check_same(#got, (long long)(got), (long long)(want))
#define CHECK(condition)                             \
  do {                                               \
    if (!(condition)) differs("not %s", #condition); \
  } while (0)
/* A wrong change would come soon, so this polls for a while; a driver that follows the rule always passes. */
#define STAYS(condition)                                                   \
  do {                                                                     \
    bool stays_ = true;                                                    \
    for (int i_ = 0; i_ < 5 && stays_; i_++, nap(1)) stays_ = (condition); \
    if (!stays_) differs("not %s", #condition);                            \
  } while (0)
#define STAYS_PENDING(query)                                                                 \
  do {                                                                                       \
    CUresult r_ = CUDA_ERROR_NOT_READY;                                                      \
    for (int i_ = 0; i_ < 5 && r_ == CUDA_ERROR_NOT_READY; i_++, nap(1)) r_ = (query);       \
    check_result(#query " of pending work", r_, CUDA_ERROR_NOT_READY, CUDA_ERROR_NOT_READY); \
  } while (0)

/* ---- pending work ---- */

/* Holds a stream back: work queued behind the gate is not done before it opens. One gate at a time: drivers run host
 * functions of different streams one after the other. */
void close_gate(CUstream stream);
void open_gate(void);
bool gate_is_open(void);

/* The call returns while the gate is closed. If it does not, the gate opens after some seconds, and that is a
 * difference. */
#define DOES_NOT_WAIT(call)     \
  do {                          \
    watch(5000);                \
    check_success(#call, call); \
    end_watch(#call, false);    \
  } while (0)
/* The call returns only after the gate has opened. */
#define WAITS(call)             \
  do {                          \
    watch(60);                  \
    check_success(#call, call); \
    end_watch(#call, true);     \
  } while (0)
/* The call may do either: the gate is open when a call that waits returns. */
#define MAY_WAIT(call)          \
  do {                          \
    watch(60);                  \
    check_success(#call, call); \
    unwatch();                  \
  } while (0)
void watch(int milliseconds);
bool unwatch(void); /* reports whether the call has waited */
void end_watch(const char* call, bool should_wait);

/* ---- objects ---- */

/* What every rule begins with, made anew in the primary context of device 0, unless it is bare. What a rule leaves of
 * this, and of what it makes by a function new_..., is destroyed after it, once all work is done. */
enum { N = 256 };
extern CUstream a, b, c;     /* of CU_STREAM_NON_BLOCKING */
extern CUstream x, y;        /* blocking */
extern CUevent e, f;         /* without timing */
extern CUdeviceptr m, n, o;  /* N bytes each */
extern unsigned char *p, *q; /* page-locked, N bytes each, all 1 */

enum object { STREAM, EVENT, MEMORY, PAGE_LOCKED, GRAPH, EXECUTABLE, POOL };
void made(enum object what, const void* handle);
CUresult ended(enum object what, const void* handle, CUresult result); /* returns the result of the call that ends it */
void begin_rule(void);
void end_rule(void);
void forget_objects(void); /* they went with their context */

/* ---- helpers ---- */

/* Makes the primary context of a device current on this thread; that of device 0 is so when a rule begins. */
CUcontext use(int ordinal);
bool is_used(int ordinal);
void reset(int ordinal); /* use makes it anew */

CUstream new_stream(void); /* of CU_STREAM_NON_BLOCKING */
CUstream new_blocking_stream(void);
CUevent new_event(void); /* without timing */
CUevent new_timed_event(void);
CUdeviceptr new_memory(size_t size);
CUdeviceptr new_managed(size_t size);
CUdeviceptr allocate(size_t size, CUstream stream); /* in stream order, to be freed by the rule */
CUmemoryPool new_pool(CUmemLocation where, int type);
unsigned char* new_pinned(size_t size);
size_t page_size(void);                /* of the system */
unsigned char* new_pages(size_t size); /* pageable, of whole pages; never freed */
CUdeviceptr address(const void* p);

/* Of device memory, read back in a stream of its own, which waits for no other. */
bool is_filled(CUdeviceptr memory, unsigned char value, size_t size);
bool all_bytes(const unsigned char* bytes, unsigned char value, size_t size);
void fill(CUdeviceptr memory, unsigned char value, size_t size); /* and waits */

int attribute(int name, int device);
void needs_13(void); /* skips the rule on a driver before CUDA 13 */

/* Runs a function on another thread. */
struct thread {
  pthread_t id;
  void (*run)(void*);
  void* data;
};
void start(struct thread* thread, void (*run)(void*), void* data);
void join(struct thread* thread);
void on_thread(void (*run)(void*), void* data); /* and waits */
bool host_reads(const volatile void* address);
bool host_writes(volatile void* address);

/* Another process: this program, started anew for the rule's function peer. */
struct peer {
  int id, in, out, differences;
};
void start_peer(struct peer* peer);
void end_peer(struct peer* peer); /* waits until it has ended, and reports its differences */
void kill_peer(struct peer* peer);
extern struct peer parent; /* of the peer */
void say(const struct peer* to, const void* bytes, size_t size);
void hear(const struct peer* from, void* bytes, size_t size);
void say_word(const struct peer* to);
void hear_word(const struct peer* from);

double now(void); /* in seconds */
void nap(int milliseconds);

/* ---- parts of the program ---- */

struct batch {
  const struct rule* const* rules;
  int count;
};
_Noreturn void run_child(struct batch batch, int out); /* child.c */
_Noreturn void run_probe(int out);
_Noreturn void run_peer(const struct rule* rule, const struct peer* other);
const struct rule* current_rule(void);
void load_driver(void);                /* driver.c */
void* find_function(const char* name); /* NULL: the driver lacks it */
void make_stage(void);                 /* help.c */
bool is_simulated(void);               /* simulator.c */
char* simulator_report(void);
int objects_left(void);
void check_violations(bool expected);

/* Constants of the API that the simulator has no need of. */
enum {
  CU_STREAM_DEFAULT = 0,
  CU_EVENT_DEFAULT = 0,
  CU_CTX_SCHED_BLOCKING_SYNC = 4,
  ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
  ATTRIBUTE_UNIFIED_ADDRESSING = 41,
  ATTRIBUTE_CAPABILITY_MAJOR = 75,
  ATTRIBUTE_CAPABILITY_MINOR = 76,
  ATTRIBUTE_MANAGED_MEMORY = 83,
  ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
  ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
  ATTRIBUTE_HOST_REGISTERED_POINTER = 91,
  ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99,
  ATTRIBUTE_PAGEABLE_HOST_TABLES = 100,
  ATTRIBUTE_DIRECT_MANAGED_ACCESS = 101,
  ATTRIBUTE_READ_ONLY_HOST_REGISTER = 113,
  ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
  ATTRIBUTE_IPC_EVENT_SUPPORTED = 125,
  ATTRIBUTE_HOST_NUMA_POOLS_SUPPORTED = 142,
  ATTRIBUTE_HOST_POOLS_SUPPORTED = 144,
};
