/* Streams whose callbacks give the GIL up.
 *
 * polars, pandas and nanoarrow hold the GIL while they call get_next. Go code that makes the next batch
 * may need it on another thread, to run a Python source or a release callback: the two would wait
 * for each other. */
#include <errno.h>
#include <stdlib.h>

#include "../../../internal/abi/abi.h"
#include "capi.h"
#include "gil.h"

#define UNLOCKED(expression)            \
  do {                                  \
    arrowdevice_keep_signal_stacks();   \
    python_begin();                     \
    void* state = python_unlock();      \
    expression;                         \
    python_lock(state);                 \
    PyObject* interrupt = python_end(); \
    if (interrupt == NULL) break;       \
    s->interrupted = 1;                 \
    python_raise_later(interrupt);      \
  } while (0)

/* The consumer raises an exception of its own before that of the handler. */
static const char interrupted[] =
    "the stream was interrupted by an exception of a signal handler, which is raised next";

/* The two structs differ in device_type and in the type of get_next's result alone. */
#define DEFINE(KIND, STREAM, ARRAY)                                               \
  struct KIND {                                                                   \
    struct STREAM inner;                                                          \
    uint64_t token;                                                               \
    int interrupted;                                                              \
  };                                                                              \
                                                                                  \
  static int KIND##_get_schema(struct STREAM* stream, struct ArrowSchema* out) {  \
    struct KIND* s = stream->private_data;                                        \
    int result;                                                                   \
    UNLOCKED(result = s->inner.get_schema(&s->inner, out));                       \
    return result;                                                                \
  }                                                                               \
                                                                                  \
  static int KIND##_get_next(struct STREAM* stream, struct ARRAY* out) {          \
    struct KIND* s = stream->private_data;                                        \
    int result;                                                                   \
    UNLOCKED(result = s->inner.get_next(&s->inner, out));                         \
    return result != 0 && s->interrupted ? EINTR : result;                        \
  }                                                                               \
                                                                                  \
  static const char* KIND##_get_last_error(struct STREAM* stream) {               \
    struct KIND* s = stream->private_data;                                        \
    return s->interrupted ? interrupted : s->inner.get_last_error(&s->inner);     \
  }                                                                               \
                                                                                  \
  static void KIND##_release(struct STREAM* stream) {                             \
    struct KIND* s = stream->private_data;                                        \
    stream->release = NULL;                                                       \
    UNLOCKED(s->inner.release(&s->inner); arrowdevice_stream_released(s->token)); \
    free(s);                                                                      \
  }                                                                               \
                                                                                  \
  static int KIND##_unlock(struct STREAM* stream, uint64_t token) {               \
    struct KIND* s = malloc(sizeof *s);                                           \
    if (s == NULL) return ENOMEM;                                                 \
    s->inner = *stream;                                                           \
    s->token = token;                                                             \
    s->interrupted = 0;                                                           \
    stream->private_data = s;                                                     \
    stream->get_schema = KIND##_get_schema;                                       \
    stream->get_next = KIND##_get_next;                                           \
    stream->get_last_error = KIND##_get_last_error;                               \
    stream->release = KIND##_release;                                             \
    return 0;                                                                     \
  }

DEFINE(plain, ArrowArrayStream, ArrowArray)
DEFINE(device, ArrowDeviceArrayStream, ArrowDeviceArray)

int arrowdevice_unlock_stream(void* stream, uint64_t token) { return plain_unlock(stream, token); }

int arrowdevice_unlock_device_stream(void* stream, uint64_t token) { return device_unlock(stream, token); }
