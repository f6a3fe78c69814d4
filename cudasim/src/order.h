/* Happens-before: which work is ordered after which, and which accesses of memory are not.
 *
 * Each stream has a slot in vector clocks, and so has the host; all of its threads share slot 0,
 * since the simulator cannot see how they synchronise with each other (option threads: each has its
 * own). A clock holds, for each slot, the operation (its epoch) up to which all work has been waited
 * for. The clock of an operation is computed, and its accesses are checked, when it is queued: so
 * nothing depends on when it runs. Only what comes after a host function has to wait for its end, when
 * the stream learns what the host knows by then. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block;
struct context;
struct event;
struct op;
struct stream;
struct thread;

/* clock.c: shared by reference, copied when a shared one changes. NULL is the clock of nothing. */
enum { CLOCK_FAN = 32 };
struct clock {
  int refs, depth;
  union {
    uint64_t at[CLOCK_FAN];         /* depth 0 */
    struct clock *below[CLOCK_FAN]; /* NULL: all zero */
  };
};

uint64_t clock_at(const struct clock *clock, int slot);
void clock_set(struct clock **clock, int slot, uint64_t epoch);
void clock_join(struct clock **clock, struct clock *other);
struct clock *clock_share(struct clock *clock);
void clock_drop(struct clock *clock);
int clock_ahead(const struct clock *a, const struct clock *b, int from);

/* The clock of an operation; NULL until it is known. */
struct mark {
  int refs;
  struct clock *clock;
};

struct marks {
  int count, room;
  struct mark **at;
};

struct mark *mark_new(void);
struct mark *mark_share(struct mark *mark); /* NULL may be shared and dropped */
void mark_drop(struct mark *mark);
void marks_add(struct marks *marks, struct mark *mark);         /* takes the reference; NULL is not added */
void marks_add_clock(struct marks *marks, struct clock *clock); /* does not take it */
void marks_add_all(struct marks *marks, const struct marks *more);
void marks_free(struct marks *marks);

/* What a party of the host knows: the program, one of its threads, or a library about memory that it
 * keeps. */
struct host {
  struct clock *clock; /* the work that it has waited for */
  int slot;
  uint64_t epoch; /* counts the work that it has queued */
};

/* The origin of an access: the operation, or the moment of the host, that made it. */
struct access {
  int refs, slot;
  uint64_t epoch, queued; /* the second counts all accesses, in the order of their calls */
  const char *call;
  struct label *stream;   /* its name; NULL: the host */
  struct label *captured; /* a node's: the stream that captured it, where the other is that of the launch */
  uint64_t launch;        /* a node's: which one; otherwise 0 */
  struct caller *caller;  /* who queued it, or captured it; NULL if that is not known */
  struct caller *launcher;
};

/* order.c */
void order_stream_new(struct stream *stream);
void order_stream_end(struct stream *stream);   /* all of its work is done */
void order_stream_renew(struct stream *stream); /* the same, and it goes on for another owner */
void order_queued(struct op *op);               /* before it is appended */
void order_begins(struct op *op);
void order_ends(struct op *op);
void order_freed(struct op *op);
void order_after(struct op *op, struct op *before);                 /* which is queued, in another stream */
struct mark *order_mark(struct op *op);                             /* what a wait for the queued operation covers */
void order_barrier(struct context *context, struct stream *stream); /* all later work follows the queued work */
void order_recorded(struct event *event, struct op *op);
void order_waits(struct op *op, const struct event *event);
void order_waited(struct stream *stream, const struct event *event); /* for an event that is complete: no operation */
/* The work that a wait for the stream or the context covers: collected when the wait begins. */
void marks_of_stream(struct marks *marks, struct stream *stream);
void marks_of_context(struct marks *marks, struct context *context);
bool order_settled(const struct access *access); /* reports whether all work to come is ordered after it */
int order_slot_of_thread(void);

/* parties.c: who knows what */
struct host *host_of_call(void);
bool host_moment(struct clock **known, int *slot, uint64_t *epoch);
bool host_knows(const struct host *host, const struct access *access);
void host_learns(struct marks *marks); /* that all of this is done; frees the marks */
void host_learns_context(struct marks *marks, uint64_t context);
void host_learns_mark(const struct mark *mark);
void host_learns_clock(struct clock *clock);
void thread_begins(struct thread *thread);
void thread_ends(struct thread *thread);
bool keepers_know(const struct access *access); /* reports whether libraries do, about all that they keep */
void keeper_forget(uintptr_t key);
struct caller *giver_of_call(void); /* who gave back what a library acts on; NULL if it is not known */

/* label.c: names of streams, which outlive them in reports */
struct label *label_of(const struct stream *stream, const char *maker); /* a call; NULL: a library handed it out */
struct label *label_share(struct label *label);
void label_drop(struct label *label);
bool label_own(const struct label *label);           /* a library has it for work of its own */
const char *label_name(const struct label *label);   /* NULL: the host */
const char *label_origin(const struct label *label); /* NULL: not worth telling */

/* caller.c: they live as long as the machine */
struct caller *caller_seen(void *from);               /* before the lock; NULL if it is not asked for */
struct caller *caller_of_call(void);                  /* NULL if it is not asked for, or not known */
const char *caller_text(const struct caller *caller); /* NULL if it is not known */
const char *caller_library(
    const struct caller *caller); /* the function of a library that says it makes the call; or NULL */
bool caller_has_memory(const struct caller *caller); /* or streams: they are the program's, and in no batch */

/* access.c */
struct ranges {
  struct range *root;
  int count, limit;
};

void access_by(struct op *op, struct block *block, const char *memory, size_t size, bool write);
void access_by_host(const char *call, struct block *block, uintptr_t address, size_t size, bool write);
void access_keep(struct block *block, uintptr_t address, size_t size, const struct host *host, struct caller *giver);
void access_done(struct block *block, uintptr_t address, size_t size, const struct host *host);
void access_hand_out(struct block *block, uintptr_t address, size_t size);
struct access *access_new(const char *call, const struct stream *stream, struct caller *caller); /* NULL: of the host */
void access_made(struct access *access, int slot, uint64_t epoch);
void access_drop(struct access *access);
void ranges_free(struct ranges *ranges);

/* conflict.c */
struct extent {
  const struct block *block;
  uintptr_t start, end;
};

void conflict(const struct extent *extent, const struct access *before, bool wrote, const struct access *after,
              bool writes);
void conflict_kept(const struct extent *extent, const struct access *kept, const struct access *after, bool writes);
void conflict_pending(const struct extent *extent, const struct access *before, bool wrote, struct caller *giver);

/* watch.c */
void watch_queued(struct stream *stream, struct op *op); /* appended, but not begun */
void watch_begins(struct op *op);
void watch_ended(struct op *op);
