/* A consumer in C, as a driver of a database is one: it releases structs, and reads streams. */
#pragma once

#include "../../internal/abi/abi.h"

struct consumer;

/* A consumer has arrays for so many structs. Unless elsewhere is 0, it releases arrays on a thread of its own. Returns
 * NULL without memory or thread. */
struct consumer* consumer_new(int64_t capacity, int elsewhere);
void consumer_free(struct consumer* c);
struct ArrowArray* consumer_arrays(struct consumer* c);

/* Calls release of the first n arrays, and returns when that is done. */
void consumer_release(struct consumer* c, int64_t n);

/* Reads a stream to its end, and releases it, its schema and its arrays. Returns how many arrays there were, or -1. */
int64_t consumer_read(struct consumer* c, struct ArrowArrayStream* stream);
