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
  struct ArrowArray made;  /* array as it was made, for the release of one whose members were changed */
  int64_t releases;
};

struct foreign_producer {
  struct foreign_node* nodes; /* the root first */
  int64_t n_nodes;
  void** host; /* memory that is overwritten, and under AddressSanitizer freed, at the last release */
  size_t* sizes;
  int64_t n_host;
  void* event;     /* a CUevent, which sync_event points to */
  int32_t claims;  /* the device type that its structs have, unless 0 */
  int64_t live;    /* nodes that are not released */
  int64_t ended;   /* how often the last node was released */
  int64_t again;   /* releases of a struct that was released */
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

/* Moves the array at a path of n children out of a tree into *out. A dictionary is child 0 of its array. */
void foreign_take_part(struct ArrowArray* a, const int64_t* path, int64_t n, struct ArrowArray* out);

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
  int64_t releases;          /* that have begun */
  int64_t released;          /* that have returned */
  int64_t again;             /* calls after the release */
};

void foreign_stream_give(struct foreign_stream* s, struct ArrowDeviceArrayStream* out);
void foreign_stream_give_plain(struct foreign_stream* s, struct ArrowArrayStream* out);
void foreign_stream_let(struct foreign_stream* s);

/* Calls of a stream's callbacks by a consumer, on a thread that Go has never seen if thread is not 0. They return what
 * the callback returned; *text is a copy of get_last_error's after an error, which the caller frees, or NULL. */
int foreign_get_schema(struct ArrowDeviceArrayStream* s, struct ArrowSchema* out, int thread, char** text);
int foreign_get_schema_plain(struct ArrowArrayStream* s, struct ArrowSchema* out, int thread, char** text);
int foreign_get_next(struct ArrowDeviceArrayStream* s, struct ArrowDeviceArray* out, int thread, char** text);
int foreign_get_next_plain(struct ArrowArrayStream* s, struct ArrowArray* out, int thread, char** text);
void foreign_release_stream(struct ArrowDeviceArrayStream* s, int thread);
void foreign_release_stream_plain(struct ArrowArrayStream* s, int thread);

/* A consumer of an asynchronous stream. It requests batches when it is told to, and keeps the tasks. */
struct foreign_consumer {
  struct ArrowAsyncDeviceStreamHandler handler;
  struct ArrowAsyncProducer* producer; /* of on_schema */
  struct ArrowSchema schema;
  struct ArrowAsyncTask tasks[64];
  int64_t tasks_count;
  int64_t first;     /* on_schema requests so many, unless 0 */
  int64_t refuse_at; /* on_next_task returns code for this one, from 1; 0: never */
  int code;
  int64_t begun; /* on_schema has returned, or will not be called */
  int64_t ended; /* on_next_task had NULL */
  int64_t failed;
  int error_code;
  char error_text[8192];
  int64_t released;
  int64_t again; /* callbacks that must not have come */
};

struct ArrowAsyncDeviceStreamHandler* foreign_consumer_begin(struct foreign_consumer* c);
/* Call the producer, on a thread that Go has never seen if thread is not 0. They return 0, or an errno. */
int foreign_request(struct foreign_consumer* c, int64_t n, int thread);
int foreign_cancel(struct foreign_consumer* c, int thread);
/* Extracts a task into *out, or drops it if out is NULL. */
int foreign_extract(struct foreign_consumer* c, int64_t task, struct ArrowDeviceArray* out, int thread);

/* How the producer of an asynchronous stream fails: at a task, from 1. */
enum {
  FOREIGN_WELL,
  FOREIGN_ERROR,        /* calls on_error instead */
  FOREIGN_LOST,         /* releases the handler without an end */
  FOREIGN_EXTRACT,      /* extract_data fails, and the stream goes on */
  FOREIGN_EXTRACT_TOLD, /* extract_data fails; when all tasks that it had sent are extracted, it calls on_error */
  FOREIGN_FLOOD /* sends one more than was requested, while a request is in progress, and releases the handler under the
                   lock that requests take */
};

/* A producer of an asynchronous stream of the arrays of several producers, which runs on a thread of its own. */
struct foreign_pusher;

struct foreign_pusher* foreign_push(struct ArrowAsyncDeviceStreamHandler* handler, struct foreign_producer** producers,
                                    int64_t count, int32_t device_type, int64_t device_id, struct ArrowSchema* schema,
                                    int trouble, int64_t at, int code, const char* text, int64_t block_at);
/* Lets it go on that waits before task block_at, from 1, or before the schema if that is 0; -1: it does not wait. */
void foreign_pusher_let(struct foreign_pusher* p);
int64_t foreign_pusher_waiting(struct foreign_pusher* p);
/* Whether its thread has done all; and how many calls it had that must not have been. */
int64_t foreign_pusher_done(struct foreign_pusher* p);
int64_t foreign_pusher_again(struct foreign_pusher* p);
/* Ends a producer that has done all. */
void foreign_pusher_free(struct foreign_pusher* p);
