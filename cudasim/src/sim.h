/* The machine, as its own files see it.
 *
 * One lock guards everything. The functions of the driver API run under it (api.c takes it and
 * gives it back), and so do the workers of the streams; only waits, large copies and the functions
 * of the program run without it. A function that waits holds references to the objects that it uses
 * afterwards. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* The only symbols of the library that others see. */
#pragma GCC visibility push(default)
#include "cuda_api.h"
#include "cudasim.h"
#pragma GCC visibility pop

#include "order.h"

enum { MAX_DEVICES = 16, MOST_VIOLATIONS = 100 };

/* A handle of the program is the name of an object, never its address: garbage, and handles of
 * destroyed objects or of another machine, are detected without reading memory. */
enum kind { CONTEXT = 1, STREAM, EVENT, POOL, GRAPH, EXEC, NODE };

/* What a live object is in reports and in the ledger. */
struct ledger_entry {
  bool kept;     /* a library keeps it in a cache of its own: not a leak */
  uint32_t slot; /* of the ledger */
};

struct object {
  enum kind kind;
  bool dead; /* destroyed by the program, but something still refers to it */
  struct ledger_entry entry;
  int refs;
  uintptr_t handle;
  const char *call;     /* that made it, ... */
  struct caller *maker; /* ... for this one */
  struct object *next;
};

/* A place in a stream. It is passed when that many operations of it are done. */
struct point {
  struct stream *stream;
  uint64_t seq;
};

struct context {
  struct object object;
  uint64_t id; /* no other context has had it */
  int device;
  unsigned flags;
  uint32_t peers; /* devices that access was enabled to */
  bool primary;
  uint64_t attached; /* created or attached, less detached: cuCtxDetach destroys at 0 */
  CUresult fault;    /* answered by every call from then on, as after a fault of the hardware */
  struct stream *legacy;
  struct stream *streams; /* all with work to do, and all not destroyed */
  struct point barrier;   /* a copy that all later work of the context follows */
  struct mark *barrier_mark;
  struct clock *retired, *retired_blocking; /* of streams that are gone: all, and those the legacy stream follows */
  struct clock *retired_work;               /* their last copies and fills */
  const char *retired_by;                   /* the call of one of them */
  struct functions *functions;              /* host functions; NULL: it has had none */
  int freeing;         /* threads that free its memory, and wait: nothing is queued meanwhile, ... */
  struct stream *full; /* ... nor while a thread waits for room in this stream; NULL: none does */
  struct context *next;
};

struct points {
  int count, room;
  struct point *at;
};

/* Nodes of a graph, by name. */
struct nodes {
  int count, room;
  CUgraphNode *at;
};

/* The captured work: a list of nodes, each after those that it depends on. */
struct graph {
  struct object object;
  struct capture *capture; /* still adds to it, and owns it; NULL: the program does */
  int count, room;
  struct node **at;
};

/* What a node does, at each launch anew: memory and events are looked up then. */
struct work {
  const char *call; /* that was captured */
  uintptr_t to, from;
  size_t size;
  bool peer;
  uint32_t value;
  int width;
  CUhostFn host;
  void *data;
  CUevent event;
};

struct node {
  struct object object;
  int type;
  struct nodes after;
  struct work work;
  CUcontext context;   /* of the stream that captured it, ... */
  struct label *label; /* ... and that stream's name */
  struct op *op;       /* of the launch in progress */
  bool reached;        /* of graph_joined */
};

/* From cuStreamBeginCapture to cuStreamEndCapture. */
struct capture {
  uint64_t id, thread;
  int mode;
  bool invalid;
  struct stream *origin;
  struct graph *graph;
  CUgraphEdgeData *edges; /* as many zeros as were asked for last */
  struct capture *next;
};

enum role { ORDINARY, LEGACY, PER_THREAD, LANE };

struct stream {
  struct object object;
  struct context *context;
  enum role role;
  unsigned flags;
  int priority;
  uint64_t id, random;
  uint64_t queued, done; /* operations ever */
  uint64_t copies;       /* between host and device, of those that are not done */
  uint64_t demanded;     /* schedule lazy: operations up to here may run */
  uint64_t gated;        /* the last operation that the program may keep back */
  struct op *first, *tail;
  bool working;            /* has a worker */
  pthread_cond_t changed;  /* something was queued or done, or the stream was destroyed */
  struct stream *next;     /* of the context */
  struct stream *next_own; /* per-thread streams: of the thread */
  int slot;                /* of vector clocks */
  uint64_t epoch;          /* its last operation that was ordered, as clocks count */
  struct clock *clock;     /* after that operation */
  struct clock *seen;      /* the host's clock when it was queued */
  struct clock *awaited;   /* completed events that the next operation is ordered after */
  uint64_t worked;         /* the epoch of its last copy or fill; 0: none */
  const char *worked_by;   /* the call that queued that */
  uint64_t ordered;        /* operations, of those queued, after which the clock is known */
  struct label *label;
  struct capture *capture; /* takes queued work; NULL: the stream runs it */
  struct nodes ends;       /* capturing: the dependencies of the next node */
  struct label *captured;  /* LANE: the stream that captured its work */
  uint64_t launch;         /* LANE: the latest */
};

/* A file that several processes map; see share.c. */
enum share_kind { SHARED_MEMORY = 1, SHARED_EVENT };

struct share {
  enum share_kind kind;
  int fd, theirs; /* here, and in the process that made it */
  int device;
  uint64_t process; /* that made it */
  uint64_t token[2];
  size_t bytes; /* of memory: as many as were asked for */
};

struct event {
  struct object object;
  struct context *context;
  unsigned flags;
  bool held;
  struct point record; /* the latest; stream NULL: never recorded */
  uint64_t time;       /* of its completion, in nanoseconds */
  struct mark *mark;   /* the work that a wait for the latest record covers */
  uint64_t capture;    /* that it was last recorded in; 0: none */
  struct nodes nodes;  /* that it stands for there */
  struct ipc_event *ipc;
  int waits; /* threads inside cuEventSynchronize of it */
};

/* Copies and fills that are queued and not done. */
struct traffic {
  uint64_t reads, writes;
};

/* Memory that the driver knows. */
enum memory { DEVICE_MEMORY, MANAGED_MEMORY, HOST_MEMORY, REGISTERED_MEMORY };

struct block {
  enum memory memory;
  bool dead; /* freed; kept for operations that still refer to it */
  struct ledger_entry entry;
  int refs;
  uintptr_t address;
  size_t size;
  ptrdiff_t shadow; /* from the address to where the simulator may touch it */
  struct arena *arena;
  struct mapping *mapping; /* of a large block */
  int size_class;
  uint64_t id;
  int device;
  unsigned flags;
  int sync_memops;
  const char *call;   /* that made it */
  struct part *parts; /* with a user each, the latest first: a library may keep the rest */
  struct context *context;
  struct pool *pool;
  struct ranges ranges; /* that were accessed */
  size_t kept_bytes;    /* that a library keeps */
  struct traffic traffic;
  struct ipc *ipc; /* shared with other processes */
  int touched;     /* operations that read or write it right now, without the lock */
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

/* An operation of a stream. */
enum bytes { HTOD, DTOH, DTOD, PEER, HTOH, SET, BYTE_KINDS };

struct op {
  enum { OP_COPY, OP_SET, OP_HOST, OP_RECORD, OP_WAIT, OP_PREFETCH, OP_ALLOC, OP_FREE } kind;
  struct op *next;
  struct stream *stream;
  const char *call;
  struct caller *caller;               /* who queued it, or captured it; NULL if that is not known */
  uint64_t seq, serial;                /* in its stream, from 1; of all, from 0 */
  struct points after;                 /* done first, in other streams */
  struct block *blocks[2];             /* touched; each is referred to */
  struct block *to_block, *from_block; /* of these, or NULL */
  struct event *event;                 /* OP_RECORD; referred to */
  struct event *remote;                /* OP_WAIT: for the record of another process; referred to */
  uint64_t number;                     /* of a record that other processes see; 0: none */
  char *to;
  const char *from;
  size_t size;
  void *staging; /* a copy of the source, to be freed */
  enum bytes bytes;
  bool staged;
  bool waited;    /* by the call that queues it */
  bool peer;      /* a copy that names the context of each end */
  uint32_t value; /* OP_SET */
  int width;
  CUhostFn host; /* OP_HOST: one of the two */
  CUstreamCallback callback;
  CUstream callback_stream;
  void *data;
  /* Its predecessors, as order.c captures them when it is queued: what the host knows, ... */
  struct clock *known;
  int host_slot;
  uint64_t host_epoch;
  bool internal;        /* work that a library does for itself */
  struct clock *prior;  /* ... other work, ... */
  struct marks awaited; /* ... and work whose clock is not known yet. */
  struct clock *clock;
  struct mark *mark; /* of the stream after it; NULL while nothing asks for it */
  struct access *access;
  bool postponed;
  struct op *next_unordered;
  bool watched, hashed; /* watch.c */
  uint64_t hash;
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
  bool per_thread;   /* the call in progress has a suffix _ptds or _ptsz */
  struct host *host; /* what it knows, with the option threads */
  bool internal;     /* a library acts for itself, ... */
  uintptr_t *keys;   /* ... and learns for these */
  size_t key_count;
  uintptr_t acts_on;    /* the key whose knowledge it acts on; 0: none */
  char *caller;         /* who makes its calls, as it says, ... */
  struct caller *place; /* ... and where the latest was made; NULL: a thread of the simulator */
  bool in_host_function;
  uint64_t id; /* given when the thread first begins a capture */
  int capture_mode;
  struct thread *next;
};

struct device {
  struct context *primary;
  unsigned primary_flags;
  uint64_t primary_refs;
  uint64_t primary_kept;    /* of those: kept by libraries, as objects are */
  uintptr_t primary_handle; /* of the first primary context; kept with primary=stable */
  struct pool *default_pool, *pool;
  uint64_t bytes, peak;
};

struct options {
  uint64_t devices, delay, random, lazy, seed, pageable_async, pageable_strict, memory, host_memory;
  uint64_t version, pools, managed, concurrent_managed_access, coherent, peer, read_only_register, poison, race, stacks,
      threads;
  bool stable_primary;
  char report[4096], ledger[4096];
};

struct sim {
  pthread_mutex_t lock;
  pthread_cond_t go;        /* resumed, or an event was fired */
  pthread_cond_t idle;      /* an operation ended while paused */
  pthread_cond_t untouched; /* no operation is at a block of memory any more */
  pthread_cond_t ready;     /* a context or a stream takes work again */
  bool configured, initialised, paused, forked;
  bool ended; /* shut down: nothing begins any more */
  int running;
  int held;     /* events that are held */
  int inside;   /* calls of the driver that have begun and not ended */
  int touching; /* threads that use memory of arenas, without the lock */
  size_t page;
  struct options options;
  struct device devices[MAX_DEVICES];
  struct context *contexts;
  struct block **blocks; /* by address, disjoint */
  size_t block_count, block_room;
  uint64_t managed_bytes, host_bytes, registered_bytes;
  uint64_t queued; /* operations ever, in all streams */
  uint64_t bytes[BYTE_KINDS], staged_bytes, synchronisations, failed_calls;
  struct call *calls;
  struct capture *captures; /* not ended */
  struct host host;         /* the program */
  struct thread *threads;
  struct traffic pageable;
  struct {
    char function[64];  /* "": any */
    uint64_t countdown; /* calls until the next one that fails; 0: none fails any more */
    uint64_t left;      /* calls that still fail */
    CUresult result;
    const char *met;
  } fault;
  struct violation {
    char *text, *kind;
    uint64_t times;
  } violations[MOST_VIOLATIONS];
  int violation_kinds;        /* of the list */
  uint64_t violation_count;   /* with those that found no room */
  uint64_t refused_addresses; /* allocations that found no address space */
};

extern struct sim sim;

/* sim.c */
void sim_lock(void);
void sim_unlock(void);
struct thread *self(void); /* under the lock */
void touch_begin(void);    /* gives the lock back: memory of arenas stays until touch_end */
void touch_end(void);
void call_left(void);
bool refuse_address(size_t size); /* false, and prints a message once */
void *fresh(size_t size);         /* zeroed; aborts rather than answer NULL */
void *grow(void *list, int count, int *room, size_t size);
uint64_t nanoseconds(void);

/* violation.c */
/* Of the call in progress, and of an operation; the place of either is added. */
void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void violation_of(const struct op *op, const char *format, ...) __attribute__((format(printf, 2, 3)));
void violation_told(char *text, bool placed); /* takes the text, which has the places, if they are known */
void violations_forget(void);
char *text_kind(const char *text, bool placed);          /* likewise, and of a live object */
char *violation_text(const struct violation *violation); /* to be freed */

/* exclusive.c */
void exclusive_ordered(struct stream *s, const struct op *op); /* which has an epoch */
void exclusive_stream_end(struct stream *s);
/* The host touches managed memory while its device, which cannot bear that, has work. */
void exclusive_check(const char *call, const struct block *b, uintptr_t address);

/* options.c */
void options_settle(void); /* before the lock; they do not change any more */

/* call.c */
#define HERE __builtin_return_address(0) /* in the program, for functions that it calls */
CUresult call_begin(struct call *call, bool per_thread, bool early, void *from);
CUresult call_end(CUresult result);

/* object.c */
CUresult object_add(struct object *object, enum kind kind);
void object_rename(struct object *object, uintptr_t handle);
void *object_find(const void *handle, enum kind kind); /* NULL if there is none or it is dead */
void *object_find_dying(const void *handle, enum kind kind);
void object_unref(struct object *object);
void object_die(struct object *object); /* not found from then on, not counted as live */
void object_keep(struct object *object, bool kept);
void objects_close(void); /* their handles */
void object_each(enum kind kind, void (*visit)(struct object *, void *), void *data);

/* primary.c */
void primary_keep(int device, uint64_t references);

/* report.c: what is live, in words */
enum { LIVE_TEXT = 504 };
bool object_of_program(const struct object *object);
void object_text(const struct object *object, char text[LIVE_TEXT]);
void block_text(const struct block *block, char text[LIVE_TEXT]);
void references_text(uint64_t references, int device, char text[LIVE_TEXT]);

/* ledger.c */
void ledger_open(void);
void ledger_leave(void);
void ledger_violation(int kind, const char *text); /* a new one */
void ledger_repeated(int kind);                    /* once more; -1: it found no room */
void ledger_forget_violations(void);
void ledger_object(struct object *object); /* live from now on, if it is the program's, or made for another one */
void ledger_block(struct block *block);    /* likewise, or with another user */
void ledger_remove(struct ledger_entry *entry);
void ledger_keep(struct ledger_entry *entry, bool kept);
void ledger_references(int device); /* to its primary context: they have changed */

/* device.c, context.c */
bool device_valid(CUdevice device);
bool device_coherent(CUdevice device);
CUresult current_context(struct context **out);
CUresult context_new(int device, unsigned flags, bool primary, struct context **out);
CUresult context_check_flags(unsigned flags);
void context_kill(struct context *context);
void context_free(struct context *context);

/* stream.c */
CUresult stream_find(CUstream handle, struct stream **out);
CUresult stream_find_current(CUstream handle, struct stream **out); /* needs a current context too */
/* The same for a call that queues work, once the stream takes it. They may give the lock back meanwhile. */
enum room { FOR_WORK, FOR_COPY };
CUresult stream_find_ready(CUstream handle, enum room room, struct stream **out);
CUresult stream_find_current_ready(CUstream handle, enum room room, struct stream **out);
CUresult stream_new(struct context *context, enum role role, unsigned flags, struct stream **out);
void stream_close(struct stream *stream);
void stream_free(struct stream *stream);
CUresult stream_start(struct stream *stream);
CUresult stream_wait(struct stream *stream, uint64_t seq);
CUresult stream_finish(struct stream *stream); /* waits for all that is queued, and the host knows it */
void stream_demand(struct stream *stream, uint64_t seq);
bool stream_precedes(const struct stream *before, const struct stream *after);
CUresult stream_await(struct stream *stream, struct event *event); /* outside of a capture */

bool stream_thread(void *(*run)(void *), void *data); /* detached, and without signals; reports whether there is one */

/* hostfunction.c */
CUresult functions_start(struct context *context);
void functions_run(struct op *op); /* for the worker of its stream */
void functions_wake(struct context *context);
void functions_end(struct context *context);

/* progress.c */
bool op_held(const struct op *op); /* by a pause, or by an event that is held */

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
bool op_is_transfer(const struct op *op);               /* a copy between host and device */
CUresult op_push(struct stream *stream, struct op *op); /* takes the operation, even if it fails */
void op_accesses(struct op *op);
void op_run(struct op *op);
void op_free(struct op *op);

/* share.c */
bool share_make(struct share *share, enum share_kind kind, size_t size);
void share_write(const struct share *share, void *handle); /* of 64 bytes */
CUresult share_read(struct share *share, enum share_kind kind, const void *handle);
CUresult share_open(struct share *share);
bool share_same(const struct share *a, const struct share *b);
void share_close(struct share *share);
uint64_t process_self(void);
bool process_lives(uint64_t process);
pid_t process_number(uint64_t process);

/* ipc.c */
bool ipc_imported(const struct block *block); /* false for NULL */
bool ipc_capable(const struct block *block);
bool ipc_release(const struct block *block); /* by one of its users here; reports whether it has no other */
CUresult ipc_map(struct block *block);
void ipc_unmap(struct block *block);
void ipc_freed(const struct block *block);
void ipc_touch(const struct op *op);
void ipc_untouch(const struct op *op);

/* ipcevent.c */
CUresult ipc_event_new(struct event *event);
void ipc_event_free(struct event *event);
CUresult ipc_event_record(struct event *event, uint64_t *number); /* 0: it is of one process */
void ipc_event_done(const struct event *event, uint64_t number);
uint64_t ipc_event_latest(const struct event *event);
bool ipc_event_pending(const struct event *event, uint64_t number);
void ipc_event_wait(struct event *event, uint64_t number);
void ipc_event_await(const struct op *op);
CUresult ipc_event_queue_wait(struct stream *stream, struct event *event, uint64_t number);

/* event.c, pool.c */
CUresult event_new(struct context *context, unsigned flags, struct event **out);
void event_free(struct event *event);
CUresult event_record_in(struct event *event, struct stream *stream); /* outside of a capture */
CUresult pool_new(int device, struct pool **out);
void pool_free(struct pool *pool);
bool pool_take(struct pool *pool, uint64_t size);
void pool_give(struct pool *pool, uint64_t size);

/* graph.c */
CUresult graph_new(struct capture *capture, struct graph **out);
void graph_free(struct graph *graph);
CUresult graph_add(struct graph *graph, int type, const struct work *work, const struct stream *s, CUgraphNode *out);
bool graph_joined(struct graph *graph, const struct nodes *ends); /* all nodes come before the ends */
void node_free(struct node *node);
void nodes_set(struct nodes *nodes, const struct nodes *from);
void nodes_add(struct nodes *nodes, const struct nodes *more);
void nodes_free(struct nodes *nodes);

/* exec.c */
struct exec;
void exec_free(struct exec *exec);

/* capture.c */
struct capture *capture_find(uint64_t id); /* NULL: it has ended */
void capture_invalidate(struct capture *capture);
void capture_leave(struct stream *stream); /* a stream that is destroyed */
bool capture_of_blocking(const struct context *context);
CUresult capture_implicit(const struct context *context);

/* captured.c */
bool capture_takes(struct stream *stream, const struct op *op, CUresult *result);
bool capture_takes_record(struct stream *stream, struct event *event, CUresult *result);
CUresult capture_record_external(CUevent event, CUstream stream);
bool capture_takes_wait(struct stream *stream, struct event *event, unsigned flags, CUresult *result);
void capture_forget(struct event *event); /* recorded outside of a capture */

/* unsafe.c: calls permitted during a capture */
CUresult capture_forbids(const char *call);
CUresult capture_forbids_stream(struct stream *stream);       /* querying, waiting for it */
CUresult capture_forbids_event(const struct event *event);    /* likewise */
CUresult capture_forbids_context(struct context *context);    /* likewise */
CUresult capture_forbids_captured(const struct event *event); /* its time, which invalidates nothing */
CUresult capture_forbids_pool(struct stream *stream);         /* stream-ordered memory */
CUresult capture_forbids_launch(struct stream *stream);
/* reach.c */
int reach_flags(const struct context *context, const struct block *block);
CUresult reach_check(const struct context *context, const struct block *block); /* of NULL: success */
/* place.c */
bool place_makes(const CUmemPoolProps *props);
CUresult place_create(CUmemoryPool *pool, const CUmemPoolProps *props);
void place_leave(const struct pool *pool);

/* copy.c: operations of nodes, which are not queued yet */
CUresult copy_op(const struct work *work, const struct stream *stream, struct op **out);
CUresult set_op(const struct work *work, const struct stream *stream, struct op **out);

/* copy.c, managed.c: for batches, which are checked before any of it is queued */
CUresult copy_check(CUdeviceptr to, CUdeviceptr from, size_t size);
CUresult copy_ordered(CUdeviceptr to, CUdeviceptr from, size_t size, int order, CUstream stream);
CUresult managed_check(CUdeviceptr address, size_t size);
CUresult managed_check_place(CUmemLocation where);

/* arena.c */
bool arena_take(struct block *block);
void arena_give(struct block *block);
bool arena_owns(uintptr_t address);
void arenas_close(void);

/* block.c */
struct block *block_new(enum memory memory, struct context *context, int device, size_t size);
CUresult block_make(struct block *block);        /* live from then on; takes the block if it fails */
bool block_on_device(const struct block *block); /* false for NULL */
struct block *block_at(uintptr_t address);
bool block_overlaps(uintptr_t address, size_t size);
void block_remove(struct block *block);        /* not found from then on, not counted as live */
void block_kill(struct block *block);          /* and gone when nothing refers to it */
void block_await_devices(struct block *block); /* those that may use it */
CUresult block_retire(struct block *block);    /* removes, waits for the devices that may use it, kills */
void block_unref(struct block *block);
void block_keep(struct block *block, bool kept);
void block_hand_out(struct block *block, uintptr_t address, size_t size);
void block_take_back(struct block *block, uintptr_t address, size_t size);
struct caller *block_user(const struct block *block); /* or NULL */

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
