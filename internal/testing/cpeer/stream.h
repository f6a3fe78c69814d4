/* A plain stream (ArrowArrayStream) as C programs write and read one. */
#pragma once

#include <stdint.h>

#include "../../abi/abi.h"

/* A producer of batches with one int64 column "n" and one row, its number. */
struct cpeer_stream {
  int64_t batches; /* how many there are */
  int64_t fail_at; /* get_next fails for this one, with code; -1: never */
  int code;
  const char* text; /* of get_last_error; may be NULL */
  int64_t next;     /* the next batch */
  int64_t released; /* calls of release of the stream */
  int64_t live;     /* arrays that are not released; atomic */
};

/* Fills *out with the stream. *producer outlives it and its arrays. */
void cpeer_stream_export(struct cpeer_stream* producer, struct ArrowArrayStream* out);

/* The results of a consumer of the same batches. */
struct cpeer_drained {
  int schema_code, next_code; /* of the first callback that failed, or 0 */
  int text;                   /* get_last_error gave a text after it */
  int format;                 /* the schema is a struct of one int64 */
  int64_t batches, sum;
};

/* Reads a stream to its end. Each column is moved out of its batch, and read when the batch and
 * the stream were released. */
void cpeer_stream_drain_here(struct ArrowArrayStream* stream, struct cpeer_drained* out);

/* The same, on a new thread. Returns 0, or the error of pthread_create. */
int cpeer_stream_drain(struct ArrowArrayStream* stream, struct cpeer_drained* out);
