#include "stream.h"

#include <stddef.h>

/* Go: what the callbacks do. Addresses are passed as words. */
extern int cdevice_v0_go_stream_get_schema(uint64_t handle, uintptr_t out);
extern int cdevice_v0_go_stream_get_next(uint64_t handle, uintptr_t out);
extern uintptr_t cdevice_v0_go_stream_get_last_error(uint64_t handle);
extern void cdevice_v0_go_release(uint64_t handle);

static uint64_t handle_of(const struct ArrowDeviceArrayStream* stream) {
  return (uint64_t)(uintptr_t)stream->private_data;
}

int cdevice_v0_stream_get_schema(struct ArrowDeviceArrayStream* stream, struct ArrowSchema* out) {
  return cdevice_v0_go_stream_get_schema(handle_of(stream), (uintptr_t)out);
}

int cdevice_v0_stream_get_next(struct ArrowDeviceArrayStream* stream, struct ArrowDeviceArray* out) {
  return cdevice_v0_go_stream_get_next(handle_of(stream), (uintptr_t)out);
}

const char* cdevice_v0_stream_get_last_error(struct ArrowDeviceArrayStream* stream) {
  return (const char*)cdevice_v0_go_stream_get_last_error(handle_of(stream));
}

void cdevice_v0_stream_release(struct ArrowDeviceArrayStream* stream) {
  if (stream->release == NULL) return;
  stream->release = NULL;
  cdevice_v0_go_release(handle_of(stream));
}

int cdevice_v0_call_stream_get_schema(uint64_t* stream, uint64_t* out) {
  struct ArrowDeviceArrayStream* s = (struct ArrowDeviceArrayStream*)stream;
  return s->get_schema(s, (struct ArrowSchema*)out);
}

int cdevice_v0_call_stream_get_next(uint64_t* stream, uint64_t* out) {
  struct ArrowDeviceArrayStream* s = (struct ArrowDeviceArrayStream*)stream;
  return s->get_next(s, (struct ArrowDeviceArray*)out);
}

const char* cdevice_v0_call_stream_get_last_error(uint64_t* stream) {
  struct ArrowDeviceArrayStream* s = (struct ArrowDeviceArrayStream*)stream;
  return s->get_last_error(s);
}

void cdevice_v0_call_stream_release(uint64_t* stream) {
  struct ArrowDeviceArrayStream* s = (struct ArrowDeviceArrayStream*)stream;
  s->release(s);
}
