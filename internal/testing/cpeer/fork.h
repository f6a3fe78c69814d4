/* A child of this process by fork, where Go does not run, and its calls of structs of Go's. */
#pragma once

#include <stdint.h>

#include "../../abi/abi.h"
#include "dlpack.h"

/* The results of the child. */
struct cpeer_forked {
  int array_released; /* release marked the array released */
  int get_schema;     /* the results of the streams' callbacks */
  int get_next;
  int plain_get_next;
  int text; /* get_last_error gave a text, for both */
  int streams_released;
  int extract_data;
  int nothing_filled; /* the structs that they were to fill are released ones */
};

/* Forks a child that uses and releases the structs as a consumer does, and request and cancel of the
 * producer. Returns 0 when the child has done all of it and *found is filled, an errno otherwise: the child
 * is ended after so many seconds. The structs of the caller stay as they are. */
int cpeer_use_in_fork(struct ArrowDeviceArray* array, struct ArrowDeviceArrayStream* stream,
                      struct ArrowArrayStream* plain, struct ArrowAsyncProducer* producer, struct ArrowAsyncTask* task,
                      int seconds, struct cpeer_forked* found);

/* Calls the deleter in a child by fork. Returns 0 if the child has ended by itself, an errno
 * otherwise: it is ended after so many seconds. */
int cpeer_delete_in_fork(DLManagedTensorVersioned* tensor, int seconds);
