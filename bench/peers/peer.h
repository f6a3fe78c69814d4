/* What the library of a peer exports, and what it is given: the same for Arrow C++, nanoarrow and arrow-rs. */
#pragma once

#include <stdint.h>

struct ArrowSchema;
struct ArrowArray;
struct ArrowArrayStream;
struct ArrowDeviceArray;
struct ArrowDeviceArrayStream;

#ifdef __cplusplus
extern "C" {
#endif

/* Gives the same batch again and again: give fills *out with a struct that borrows it. The struct is
 * released before the next one is given. */
struct bench_producer {
  void (*give)(struct bench_producer* producer, struct ArrowDeviceArray* out);
};

/* Releases what all sides export, in C. */
struct bench_consumer {
  /* Moves an array to the consumer, which releases it: at once, or later, with others, on a thread of its own. */
  void (*take)(struct bench_consumer* consumer, struct ArrowArray* array);
  /* Read a stream to its end, take its arrays, and release it. They return how many arrays there were, or -1. */
  int64_t (*read)(struct bench_consumer* consumer, struct ArrowArrayStream* stream);
  int64_t (*read_device)(struct bench_consumer* consumer, struct ArrowDeviceArrayStream* stream);
};

/* The version of the peer. */
const char* peer_version(void);

/* Prepares an operation by its name. It takes the schema and the batch: the peer imports them once, for
 * the operations that begin with data of its own. The producer is for those that import, the consumer for those that
 * export. Returns NULL if the peer lacks the operation, or if peer_error has a text. */
void* peer_open(const char* operation, struct ArrowSchema* schema, struct ArrowDeviceArray* batch,
                struct bench_producer* producer, struct bench_consumer* consumer);

/* Does the operation n times on the calling thread. Returns 0, or else peer_error has a text. */
int peer_run(void* operation, int64_t n);

void peer_close(void* operation);

/* The text of the last error of this thread, or "". */
const char* peer_error(void);

#ifdef __cplusplus
}
#endif
