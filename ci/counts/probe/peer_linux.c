#include "peer.h"

#include <errno.h>
#include <stdlib.h>

void peer_release(uintptr_t array) {
  struct ArrowArray* a = (struct ArrowArray*)array;
  a->release(a);
}

void peer_release_schema(uintptr_t schema) {
  struct ArrowSchema* s = (struct ArrowSchema*)schema;
  s->release(s);
}

int64_t peer_read(uintptr_t stream) {
  struct ArrowDeviceArrayStream* s = (struct ArrowDeviceArrayStream*)stream;
  struct ArrowDeviceArray next;
  int64_t n = 0;
  int code;
  while ((code = s->get_next(s, &next)) == 0 && next.array.release != NULL) {
    next.array.release(&next.array);
    n++;
  }
  s->release(s);
  return code == 0 ? n : -1;
}

int64_t peer_read_plain(uintptr_t stream) {
  struct ArrowArrayStream* s = (struct ArrowArrayStream*)stream;
  struct ArrowArray next;
  int64_t n = 0;
  int code;
  while ((code = s->get_next(s, &next)) == 0 && next.release != NULL) {
    next.release(&next);
    n++;
  }
  s->release(s);
  return code == 0 ? n : -1;
}

static void mark_released(struct ArrowArray* a) { a->release = NULL; }

void peer_lend(uintptr_t array) { ((struct ArrowArray*)array)->release = mark_released; }

struct stream {
  struct ArrowDeviceArray array;
  struct ArrowSchema schema;
  int64_t left;
};

static int get_schema(struct ArrowDeviceArrayStream* self, struct ArrowSchema* out) {
  struct stream* s = self->private_data;
  *out = s->schema;
  s->schema.release = NULL;
  return 0;
}

static int get_next(struct ArrowDeviceArrayStream* self, struct ArrowDeviceArray* out) {
  struct stream* s = self->private_data;
  *out = s->array;
  if (s->left-- == 0) out->array.release = NULL;
  return 0;
}

static const char* get_last_error(struct ArrowDeviceArrayStream* self) {
  (void)self;
  return NULL;
}

static void release_stream(struct ArrowDeviceArrayStream* self) {
  free(self->private_data);
  self->release = NULL;
}

int peer_stream(uintptr_t array, uintptr_t schema, int64_t n, uintptr_t out) {
  struct stream* s = malloc(sizeof *s);
  if (s == NULL) return ENOMEM;
  *s = (struct stream){*(struct ArrowDeviceArray*)array, *(struct ArrowSchema*)schema, n};
  *(struct ArrowDeviceArrayStream*)out =
      (struct ArrowDeviceArrayStream){s->array.device_type, get_schema, get_next, get_last_error, release_stream, s};
  return 0;
}
