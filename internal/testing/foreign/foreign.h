/* Another library of the interface, for random programs: it owns memory of any device, and counts what is
 * done to its structs. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../../abi/abi.h"

struct foreign_producer;

/* One ArrowArray of a producer: its private_data. */
struct foreign_node {
  struct foreign_producer* producer;
  struct ArrowArray array; /* a child; the root's is given away */
  int64_t releases;
};

struct foreign_producer {
  struct foreign_node* nodes; /* the root first */
  int64_t n_nodes;
  void** host; /* memory that is overwritten, and under AddressSanitizer freed, at the last release */
  size_t* sizes;
  int64_t n_host;
  void* event;    /* a CUevent, which sync_event points to */
  int64_t live;   /* nodes that are not released */
  int64_t ended;  /* how often the last node was released */
  int64_t again;  /* releases of a struct that was released */
  int64_t schemas; /* that are not released */
};

/* Fills *out with the producer's array. */
void foreign_give(struct foreign_producer* p, int32_t device_type, int64_t device_id, struct ArrowDeviceArray* out);

/* Loads a count that other threads change. */
int64_t foreign_load(int64_t* count);

/* The release callback of the arrays. */
void foreign_release_node(struct ArrowArray* a);

/* Releases a copy of the struct of a producer. */
void foreign_end(struct ArrowArray* a);

/* Has the producer count the release of a schema. Returns 0 or ENOMEM. */
int foreign_count_schema(struct foreign_producer* p, struct ArrowSchema* s);

/* How a consumer releases an array. */
enum {
  FOREIGN_HERE,           /* on this thread */
  FOREIGN_THREAD,         /* on a thread that Go has never seen */
  FOREIGN_MOVED,          /* after a move to other memory */
  FOREIGN_TWICE,          /* with another call of the callback, although the struct is released then */
  FOREIGN_CHILDREN_FIRST, /* each child by itself, before the root */
  FOREIGN_CHILDREN_LAST,  /* the children are moved out, and released after the root, the last one first */
  FOREIGN_THREADS,        /* as CHILDREN_LAST, each struct on a thread of its own, at the same time */
  FOREIGN_WAYS
};

/* Releases the array in one of the ways. Returns 0, or an errno. */
int foreign_release(struct ArrowArray* a, int way);

/* Moves child i out of its parent into *out. */
void foreign_take_child(struct ArrowArray* parent, int64_t i, struct ArrowArray* out);

/* The handle at a sync_event, or 0. */
uintptr_t foreign_event(const void* sync_event);

/* The first value of the first column, an int64. */
int64_t foreign_number(const struct ArrowArray* a);

/* Adds up the bytes at p, on a thread that Go has never seen. */
uint64_t foreign_sum_on_thread(const void* p, size_t size);

/* A stream of the arrays of several producers. */
struct foreign_stream {
  struct foreign_producer** producers; /* their arrays are given in this order */
  int64_t count;
  int64_t next;
  int64_t fail_at; /* get_next fails for this one with code; -1: never */
  int code;
  int schema_code;  /* of get_schema, unless 0 */
  const char* text; /* of get_last_error; may be NULL */
  int64_t block_at; /* get_next waits before this one until let is set; -1: never */
  int64_t let;
  int64_t waiting; /* get_next waits */
  int32_t device_type;
  int64_t device_id;
  struct ArrowSchema schema; /* the first get_schema moves it out */
  int64_t released;
  int64_t again; /* calls after the release */
};

void foreign_stream_give(struct foreign_stream* s, struct ArrowDeviceArrayStream* out);
void foreign_stream_give_plain(struct foreign_stream* s, struct ArrowArrayStream* out);
void foreign_stream_let(struct foreign_stream* s);

/* Calls of a stream's callbacks by a consumer, on a thread that Go has never seen if thread is not 0. They return what the callback
 * returned; *text is a copy of get_last_error's after an error, which the caller frees, or NULL. */
int foreign_get_schema(struct ArrowDeviceArrayStream* s, struct ArrowSchema* out, int thread, char** text);
int foreign_get_schema_plain(struct ArrowArrayStream* s, struct ArrowSchema* out, int thread, char** text);
int foreign_get_next(struct ArrowDeviceArrayStream* s, struct ArrowDeviceArray* out, int thread, char** text);
int foreign_get_next_plain(struct ArrowArrayStream* s, struct ArrowArray* out, int thread, char** text);
void foreign_release_stream(struct ArrowDeviceArrayStream* s, int thread);
void foreign_release_stream_plain(struct ArrowArrayStream* s, int thread);
