/* A peer's library, loaded. */
#pragma once

#include "consumer.h"

struct library {
  const char* (*version)(void);
  void* (*open)(const char*, struct ArrowSchema*, struct ArrowDeviceArray*, struct bench_producer*,
                struct bench_consumer*);
  int (*run)(void*, int64_t);
  void (*close)(void*);
  const char* (*error)(void);
};

/* Returns NULL, or the text of an error. A library stays loaded. */
const char* library_load(const char* path, struct library* out);

void* library_open(const struct library* l, const char* operation, struct ArrowSchema* schema,
                   struct ArrowDeviceArray* batch, struct bench_producer* producer, struct bench_consumer* consumer);

/* These return NULL, or the text of an error, which the next call changes. After a run, the consumer has released all
 * arrays that it took. */
const char* library_error(const struct library* l);
const char* library_run(const struct library* l, void* operation, struct consumer* consumer, int64_t n);

void library_close(const struct library* l, void* operation);
const char* library_version(const struct library* l);
