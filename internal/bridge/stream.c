#include "stream.h"
#include "fork.h"

#include "result.h"

#include <stddef.h>

/* Go: what the callbacks do, for both kinds of streams. Addresses are passed as words. */
extern int cdevice_v0_go_stream_get_schema(uint64_t handle, uintptr_t out);
extern int cdevice_v0_go_stream_get_next(uint64_t handle, uintptr_t out);
extern uintptr_t cdevice_v0_go_stream_get_last_error(uint64_t handle);
extern void cdevice_v0_go_release(uint64_t handle);

/* The two kinds differ in the types of the structs, and so in the types of the callbacks:
 * a callback must not be called through a pointer to a function of another type. */
#define STREAM(kind, stream_type, array_type)                                                                          \
  int cdevice_v0_##kind##_get_schema(stream_type* stream, struct ArrowSchema* out) {                                   \
    int code = CDEVICE_FORKED;                                                                                         \
    if (!cdevice_v0_forked()) code = cdevice_v0_go_stream_get_schema((uintptr_t)stream->private_data, (uintptr_t)out); \
    return cdevice_v0_result(code, out, sizeof *out);                                                                  \
  }                                                                                                                    \
                                                                                                                       \
  int cdevice_v0_##kind##_get_next(stream_type* stream, array_type* out) {                                             \
    int code = CDEVICE_FORKED;                                                                                         \
    if (!cdevice_v0_forked()) code = cdevice_v0_go_stream_get_next((uintptr_t)stream->private_data, (uintptr_t)out);   \
    return cdevice_v0_result(code, out, sizeof *out);                                                                  \
  }                                                                                                                    \
                                                                                                                       \
  const char* cdevice_v0_##kind##_get_last_error(stream_type* stream) {                                                \
    if (cdevice_v0_forked()) return cdevice_v0_forked_text;                                                            \
    return (const char*)cdevice_v0_go_stream_get_last_error((uintptr_t)stream->private_data);                          \
  }                                                                                                                    \
                                                                                                                       \
  void cdevice_v0_##kind##_release(stream_type* stream) {                                                              \
    if (stream->release == NULL) return;                                                                               \
    stream->release = NULL;                                                                                            \
    if (!cdevice_v0_forked()) cdevice_v0_go_release((uintptr_t)stream->private_data);                                  \
  }                                                                                                                    \
                                                                                                                       \
  int cdevice_v0_call_##kind##_get_schema(uint64_t* stream, uint64_t* out) {                                           \
    stream_type* s = (stream_type*)stream;                                                                             \
    return s->get_schema(s, (struct ArrowSchema*)out);                                                                 \
  }                                                                                                                    \
                                                                                                                       \
  int cdevice_v0_call_##kind##_get_next(uint64_t* stream, uint64_t* out) {                                             \
    stream_type* s = (stream_type*)stream;                                                                             \
    return s->get_next(s, (array_type*)out);                                                                           \
  }                                                                                                                    \
                                                                                                                       \
  const char* cdevice_v0_call_##kind##_get_last_error(uint64_t* stream) {                                              \
    stream_type* s = (stream_type*)stream;                                                                             \
    return s->get_last_error == NULL ? NULL : s->get_last_error(s);                                                    \
  }                                                                                                                    \
                                                                                                                       \
  void cdevice_v0_call_##kind##_release(uint64_t* stream) {                                                            \
    stream_type* s = (stream_type*)stream;                                                                             \
    s->release(s);                                                                                                     \
  }

STREAM(stream, struct ArrowDeviceArrayStream, struct ArrowDeviceArray)
STREAM(plain_stream, struct ArrowArrayStream, struct ArrowArray)
