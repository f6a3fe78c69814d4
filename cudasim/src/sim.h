/* The machine, as its own files see it.
 *
 * One lock guards everything. The functions of the driver API run under it (api.c
 * takes it and gives it back), and so do the workers of the streams; only waits,
 * large copies and the functions of the program are done without it. Whatever
 * outlives a wait holds a reference to what it looks at afterwards. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The only symbols of the library that others see. */
#pragma GCC visibility push(default)
#include "cuda_api.h"
#include "cudasim.h"
#pragma GCC visibility pop

enum { MAX_DEVICES = 16 };

/* What the program holds is the name of an object, never its address: garbage, and
 * what was destroyed or belongs to another machine, is found out without reading it. */
enum kind { CONTEXT = 1, STREAM, EVENT, POOL };

struct object {
  enum kind kind;
  bool dead; /* destroyed by the program, but something still refers to it */
  int refs;
  uintptr_t handle;
  const char *call; /* that made it */
  struct object *next;
};

struct context {
  struct object object;
  int device;
  unsigned flags;
  uint32_t peers; /* devices that access was enabled to */
  bool primary;
  CUresult fault; /* answered by every call from then on, as after a fault of the hardware */
  struct stream *legacy;
  struct stream *streams; /* all with work to do, and all not destroyed */
  struct context *next;
};

/* A place in a stream. It is passed when that many operations of it are done. */
struct point {
  struct stream *stream;
  uint64_t seq;
};

struct points {
  int count, room;
  struct point *at;
};

enum role { ORDINARY, LEGACY, PER_THREAD };

struct stream {
  struct object object;
  struct context *context;
  enum role role;
  unsigned flags;
  int priority;
  uint64_t id, random;
  uint64_t queued, done; /* operations ever */
  struct op *first, **last;
  bool working;              /* has a worker */
  pthread_cond_t changed;    /* something was queued or done, or the stream was destroyed */
  struct stream *next;       /* of the context */
  struct stream *next_own;   /* per-thread streams: of the thread */
  uint64_t search, searched; /* of order.c */
};

struct event {
  struct object object;
  struct context *context;
  unsigned flags;
  bool held;
  struct point record; /* the latest; stream NULL: never recorded */
  uint64_t time;       /* of its completion, in nanoseconds */
};

/* Memory that the driver knows. */
enum memory { DEVICE_MEMORY, MANAGED_MEMORY, HOST_MEMORY, REGISTERED_MEMORY };

struct block {
  enum memory memory;
  bool dead; /* freed; kept for operations that still refer to it */
  int refs;
  uintptr_t address;
  size_t size;
  ptrdiff_t shadow; /* from the address to where the simulator may touch it */
  struct arena *arena;
  int size_class;
  uint64_t id;
  int device;
  unsigned flags;
  int sync_memops;
  const char *call; /* that made it */
  struct context *context;
  struct pool *pool;
  struct point birth; /* stream-ordered: until then nobody may use it */
  struct block *next;
};

struct pool {
  struct object object;
  int device; /* -1: of host or managed memory, see place.c */
  int place;
  enum memory memory;
  bool is_default;
  int reuse[3];
  uint64_t limit, threshold, reserved, reserved_high, used, used_high, settled;
  unsigned char access[MAX_DEVICES];
};

/* What a stream does. */
enum bytes { HTOD, DTOH, DTOD, PEER, HTOH, SET, BYTE_KINDS };

struct op {
  enum { OP_COPY, OP_SET, OP_HOST, OP_RECORD, OP_WAIT, OP_PREFETCH, OP_ALLOC, OP_FREE } kind;
  struct op *next;
  const char *call;
  uint64_t seq;
  struct points after;     /* done first, in other streams */
  struct block *blocks[2]; /* touched; each is referred to */
  struct event *event;     /* OP_RECORD; referred to */
  char *to;
  const char *from;
  size_t size;
  void *staging; /* a copy of the source, to be freed */
  enum bytes bytes;
  bool staged;
  uint32_t value; /* OP_SET */
  int width;
  CUhostFn host; /* OP_HOST: one of the two */
  CUstreamCallback callback;
  CUstream callback_stream;
  void *data;
};

/* A function of the driver API. */
struct call {
  const char *name;
  uint64_t count;
  bool listed;
  struct call *next;
};

struct thread {
  struct context **stack; /* the last is current; each is referred to */
  int depth, room;
  struct stream *streams; /* per-thread default streams, one per context */
  const char *call;
  bool per_thread; /* the call in progress has a suffix _ptds or _ptsz */
  bool in_host_function;
};

struct device {
  struct context *primary;
  unsigned primary_flags;
  uint64_t primary_refs;
  struct pool *default_pool, *pool;
  uint64_t bytes, peak;
};

struct options {
  uint64_t devices, delay, random, seed, pageable_async, memory, host_memory;
  uint64_t version, pools, managed, peer, poison;
  char report[4096];
};

struct sim {
  pthread_mutex_t lock;
  pthread_cond_t go;   /* resumed, or an event was fired */
  pthread_cond_t idle; /* an operation ended while paused */
  bool configured, initialised, paused, forked;
  int running;
  size_t page;
  struct options options;
  struct device devices[MAX_DEVICES];
  struct context *contexts;
  struct block **blocks; /* by address, disjoint */
  size_t block_count, block_room;
  uint64_t managed_bytes, host_bytes, registered_bytes;
  uint64_t bytes[BYTE_KINDS], staged_bytes, synchronisations, failed_calls;
  struct call *calls;
  struct {
    char function[64]; /* "": any */
    uint64_t countdown;
    CUresult result;
    const char *met;
  } fault;
  char *violations[100];
  uint64_t violation_count;
};

extern struct sim sim;

/* sim.c */
void sim_lock(void);
void sim_unlock(void);
struct thread *self(void);
void *fresh(size_t size); /* zeroed; aborts rather than answer NULL */
void *grow(void *list, int count, int *room, size_t size);
uint64_t nanoseconds(void);
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* options.c */
void options_from_environment(void);

/* call.c */
CUresult call_begin(struct call *call, bool per_thread, bool early);
CUresult call_end(CUresult result);

/* object.c */
CUresult object_add(struct object *object, enum kind kind);
void *object_find(const void *handle, enum kind kind); /* NULL if there is none or it is dead */
void *object_find_dying(const void *handle, enum kind kind);
void object_unref(struct object *object);
void object_each(enum kind kind, void (*visit)(struct object *, void *), void *data);

/* device.c, context.c */
bool device_valid(CUdevice device);
CUresult current_context(struct context **out);
CUresult context_new(int device, unsigned flags, bool primary, struct context **out);
CUresult context_check_flags(unsigned flags);
void context_kill(struct context *context);
void context_free(struct context *context);

/* stream.c */
CUresult stream_find(CUstream handle, struct stream **out);
CUresult stream_find_current(CUstream handle, struct stream **out); /* needs a current context too */
CUresult stream_new(struct context *context, enum role role, unsigned flags, struct stream **out);
void stream_close(struct stream *stream);
void stream_free(struct stream *stream);
CUresult stream_start(struct stream *stream);
CUresult stream_wait(struct stream *stream, uint64_t seq);
bool stream_precedes(const struct stream *before, const struct stream *after);

/* point.c */
bool point_pending(struct point point);
void point_set(struct point *point, struct stream *stream, uint64_t seq); /* stream may be NULL */
void points_add(struct points *points, struct point point);
void points_add_all(struct points *points, struct stream *stream);
void points_add_context(struct points *points, const struct context *context);
void points_add_device(struct points *points, int device); /* -1: all */
void points_wait(struct points *points);
void points_free(struct points *points);

/* op.c */
struct op *op_new(int kind);
void op_touch(struct op *op, struct block *block);
CUresult op_push(struct stream *stream, struct op *op); /* takes the operation, also when it fails */
void op_run(struct stream *stream, struct op *op);
void op_free(struct op *op);

/* order.c */
void check_birth(struct stream *stream, const struct op *op);
void check_death(struct stream *stream, const struct op *op);

/* event.c, pool.c */
void event_free(struct event *event);
CUresult pool_new(int device, struct pool **out);
void pool_free(struct pool *pool);
bool pool_take(struct pool *pool, uint64_t size);
void pool_give(struct pool *pool, uint64_t size);

/* place.c */
bool place_makes(const CUmemPoolProps *props);
CUresult place_create(CUmemoryPool *pool, const CUmemPoolProps *props);
void place_leave(const struct pool *pool);

/* copy.c, managed.c: for batches, which are checked before any of it is queued */
CUresult copy_check(CUdeviceptr to, CUdeviceptr from, size_t size);
CUresult copy_ordered(CUdeviceptr to, CUdeviceptr from, size_t size, int order, CUstream stream);
CUresult managed_check(CUdeviceptr address, size_t size);
CUresult managed_check_place(CUmemLocation where);

/* arena.c */
bool arena_take(struct block *block);
void arena_give(struct block *block);
bool arena_owns(uintptr_t address);

/* block.c */
struct block *block_new(enum memory memory, struct context *context, int device, size_t size);
CUresult block_make(struct block *block); /* live from then on; takes the block if it fails */
bool block_on_device(const struct block *block); /* false for NULL */
struct block *block_at(uintptr_t address);
bool block_overlaps(uintptr_t address, size_t size);
void block_remove(struct block *block);     /* not found from then on, not counted as live */
void block_kill(struct block *block);       /* and gone when nothing refers to it */
CUresult block_retire(struct block *block); /* removes, waits for the devices that may use it, kills */
void block_unref(struct block *block);

#define API(base, suffix, since, body, params, args) CUresult body params;
#define API_EARLY API
#define API_PTDS API
#define API_PTSZ API
#include "functions.h"
#ifndef CUDASIM_13
#include "functions13.h" /* without symbols */
#endif
#undef API
#undef API_EARLY
#undef API_PTDS
#undef API_PTSZ
