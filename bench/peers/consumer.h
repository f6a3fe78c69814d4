/* A consumer in C, as a driver of a database is one: it releases structs, and reads streams. */
#pragma once

#include "../../internal/abi/abi.h"
#include "peer.h"

struct consumer {
  struct bench_consumer base;
  int64_t capacity;
  int64_t held; /* arrays that were taken and are not released yet */
  struct ArrowDeviceArray* arrays;
  struct releaser* elsewhere; /* NULL: on the thread of the caller */
};

/* A consumer has structs for so many arrays. Unless elsewhere is 0, it releases arrays on a thread of its own, as soon
 * as it holds so many. Returns NULL without memory or thread. */
struct consumer* consumer_new(int64_t capacity, int elsewhere);
void consumer_free(struct consumer* c);

/* Calls release of the first n arrays, and returns when that is done. */
void consumer_release(struct consumer* c, int64_t n);

/* Releases the arrays that it holds. */
void consumer_flush(struct consumer* c);

/* Read a stream to its end, release its arrays, and release it. They return how many arrays there were, or -1. */
int64_t consumer_read(struct consumer* c, struct ArrowArrayStream* stream);
int64_t consumer_read_device(struct consumer* c, struct ArrowDeviceArrayStream* stream);
