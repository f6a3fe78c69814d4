/* Happens-before: which work is ordered after which, and which accesses of memory are not.
 *
 * Each stream has a slot in vector clocks, and so has the host; all of its threads share slot 0,
 * since the simulator cannot see how they synchronise with each other. A clock holds, for each
 * slot, the operation (its epoch) up to which all work has been waited for. The predecessors of an
 * operation are captured when it is queued, and its clock is computed when it runs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block;
struct context;
struct event;
struct op;
struct stream;

/* clock.c: shared by reference, copied when a shared one changes. NULL is the clock of nothing. */
struct clock {
  int refs, count;
  uint64_t at[];
};

uint64_t clock_at(const struct clock *clock, int slot);
void clock_set(struct clock **clock, int slot, uint64_t epoch);
void clock_join(struct clock **clock, struct clock *other);
struct clock *clock_share(struct clock *clock);
void clock_drop(struct clock *clock);

/* The clock of an operation that may not have run yet: filled when it has. */
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
void marks_add_clock(struct marks *marks, struct clock *clock); /* of completed work; does not take it */
void marks_add_all(struct marks *marks, const struct marks *more);
void marks_free(struct marks *marks);

/* The origin of an access: the operation, or the moment of the host, that made it. */
struct access {
  int refs, slot;
  uint64_t epoch, queued; /* the second counts all accesses, in the order of their calls */
  const char *call;
  int role;         /* of the stream */
  uintptr_t stream; /* its handle; 0: the host */
  char *stack;      /* where it was queued, NULL unless option stacks */
};

/* order.c */
void order_stream_new(struct stream *stream);
void order_stream_end(struct stream *stream);            /* all of its work is done */
void order_queued(struct stream *stream, struct op *op); /* before the operation is appended */
void order_begins(struct stream *stream, struct op *op);
void order_ends(struct stream *stream, struct op *op);
void order_freed(struct op *op);
void order_barrier(struct context *context, struct stream *stream); /* all later work follows the queued work */
void order_recorded(struct event *event, struct op *op);
void order_waits(struct op *op, const struct event *event);
void order_waited(struct stream *stream, const struct event *event); /* for an event that is complete: no operation */
/* The work that a wait for the stream or the context covers: collected when the wait begins. */
void marks_of_stream(struct marks *marks, struct stream *stream);
void marks_of_context(struct marks *marks, struct context *context);
void host_learns(struct marks *marks); /* that all of this is done; frees the marks */
void host_learns_mark(const struct mark *mark);
bool order_settled(const struct access *access); /* reports whether all work to come is ordered after it */

/* access.c */
struct ranges {
  struct range *root;
  int count, limit;
};

void access_by(struct op *op, struct block *block, const char *memory, size_t size, bool write);
void access_by_host(const char *call, struct block *block, uintptr_t address, size_t size, bool write);
struct access *access_new(const char *call, const struct stream *stream); /* NULL: of the host */
void access_drop(struct access *access);
void ranges_free(struct ranges *ranges);

/* watch.c */
void watch_queued(struct stream *stream, struct op *op); /* appended, but not begun */
void watch_begins(struct op *op);
void watch_ended(struct op *op);
