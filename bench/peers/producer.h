/* A producer in C, for the imports of all sides, and the C floor for exports. */
#pragma once

#include "../../internal/abi/abi.h"
#include "peer.h"

struct producer {
  struct bench_producer base;
  struct ArrowDeviceArray next; /* what give copies to *out */
  struct ArrowDeviceArray source;
  int64_t n_nodes; /* below the root */
  struct ArrowArray* nodes;
  void* block; /* has the nodes and the pointers to them */
};

/* Takes the source. Returns NULL if there is no memory. */
struct producer* producer_new(struct ArrowDeviceArray* source);
void producer_free(struct producer* p);

/* The floor: so many structs, each filled with one malloc. This is the least that a C program can do, without a count
 * of references. Returns 0 or ENOMEM. */
int floor_run(const struct producer* p, struct bench_consumer* consumer, int64_t n);

/* The same through a stream. Returns how many structs the consumer read, or -1. */
int64_t floor_stream(const struct producer* p, struct bench_consumer* consumer, int64_t n);

/* The release of an array that owns no memory: it calls release of the nodes below. */
void release_child(struct ArrowArray* array);

/* The bytes that malloc has given out. */
int64_t allocated(void);

/* Calls release of a struct ArrowArray, which is passed as words: cgo would search for pointers in it. */
void release_one(uint64_t* array);

/* Calls release of so many structs. */
void release_all(struct ArrowDeviceArray* all, int64_t n);
