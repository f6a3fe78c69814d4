/* Streams of sources in Python. The callbacks are C, and not callbacks of ctypes: an exception of a signal
 * handler can come before the first instruction of a Python function, and must not be read as the end of the
 * stream; and a stream is also released while an exception is propagating, when Python code must not see it. */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "../../../internal/abi/abi.h"
#include "capi.h"
#include "python.h"

static int in_main_thread(const struct arrowdevice_source* s) { return (uint64_t)(uintptr_t)pthread_self() == s->main; }

/* Calls fill_schema or fill_next. A failure lasts. */
static int fill(struct arrowdevice_source* s, const char* method, void* out, size_t size, size_t release_at) {
  if (s->code != 0) return s->code;
  struct python_state state;
  if (!python_enter(&state)) {
    s->text = "the interpreter of the source has ended";
    return s->code = ECANCELED;
  }
  s->filled = NULL;
  s->text = "the source was interrupted by an exception of a signal handler";
  s->code = EINTR;
  void* exception = python_call(s->object, method);
  if (exception != NULL) python_raise_later(exception, s->object, in_main_thread(s));
  if (s->filled != NULL) { /* also if the exception came after that */
    memcpy(out, s->filled, size);
    memset((char*)s->filled + release_at, 0, sizeof(void*));
    s->code = 0;
  }
  int code = s->code;
  python_leave(&state);
  return code;
}

static int get_schema(struct ArrowDeviceArrayStream* stream, struct ArrowSchema* out) {
  return fill(stream->private_data, "fill_schema", out, sizeof *out, offsetof(struct ArrowSchema, release));
}

static int get_next(struct ArrowDeviceArrayStream* stream, struct ArrowDeviceArray* out) {
  return fill(stream->private_data, "fill_next", out, sizeof *out, offsetof(struct ArrowDeviceArray, array.release));
}

static const char* get_last_error(struct ArrowDeviceArrayStream* stream) {
  const struct arrowdevice_source* s = stream->private_data;
  return s->code != 0 ? s->text : NULL;
}

static void release(struct ArrowDeviceArrayStream* stream) {
  struct arrowdevice_source* s = stream->private_data;
  struct python_state state;
  stream->release = NULL;
  if (!python_enter(&state)) return;
  void* object = s->object;
  int in_main = in_main_thread(s);
  python_keep(object); /* release ends the memory of s */
  /* An exception of a signal handler breaks it off; what it has done by then is not done twice. */
  void* exception = python_call(object, "release");
  int of_handler = in_main && exception != NULL && python_ask(object, "is_of_handler", exception);
  void* next = exception;
  for (int i = 0; i < 5 && next != NULL; i++) {
    next = python_call(object, "release");
    if (next != NULL) python_drop(next);
  }
  /* Other exceptions are those of a generator's finally. */
  if (exception != NULL) python_raise_later(exception, object, of_handler);
  python_drop(object);
  python_leave(&state);
}

void arrowdevice_v1_open_source(void* memory, struct arrowdevice_source* source) {
  struct ArrowDeviceArrayStream* stream = memory;
  stream->private_data = source;
  stream->get_schema = get_schema;
  stream->get_next = get_next;
  stream->get_last_error = get_last_error;
  stream->release = release;
}
