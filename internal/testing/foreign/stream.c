#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "foreign.h"

static int schema_of(struct foreign_stream* s, struct ArrowSchema* out) {
  if (s->releases) __atomic_add_fetch(&s->again, 1, __ATOMIC_ACQ_REL);
  if (s->schema_code != 0) return s->schema_code;
  if (s->schema.release == NULL) return EINVAL;
  *out = s->schema;
  s->schema.release = NULL;
  return 0;
}

static int next_of(struct foreign_stream* s, struct ArrowDeviceArray* out) {
  if (s->releases) __atomic_add_fetch(&s->again, 1, __ATOMIC_ACQ_REL);
  if (s->next == s->block_at) {
    __atomic_store_n(&s->waiting, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&s->let, __ATOMIC_ACQUIRE)) usleep(100);
    __atomic_store_n(&s->waiting, 0, __ATOMIC_RELEASE);
  }
  if (s->next == s->fail_at) return s->code;
  if (s->next == s->count) {
    memset(out, 0xdd, sizeof *out); /* only release counts */
    out->array.release = NULL;
    return 0;
  }
  foreign_give(s->producers[s->next++], s->device_type, s->device_id, out);
  return 0;
}

static void release_of(struct foreign_stream* s) {
  if (s->releases++) __atomic_add_fetch(&s->again, 1, __ATOMIC_ACQ_REL);
  if (s->schema.release != NULL) s->schema.release(&s->schema);
  for (; s->next < s->count; s->next++) {
    struct ArrowDeviceArray rest;
    foreign_give(s->producers[s->next], s->device_type, s->device_id, &rest);
    rest.array.release(&rest.array);
  }
  __atomic_add_fetch(&s->released, 1, __ATOMIC_ACQ_REL); /* the last use: the stream may be freed from now on */
}

static int device_schema(struct ArrowDeviceArrayStream* s, struct ArrowSchema* out) {
  return schema_of(s->private_data, out);
}

static int device_next(struct ArrowDeviceArrayStream* s, struct ArrowDeviceArray* out) {
  return next_of(s->private_data, out);
}

static const char* device_error(struct ArrowDeviceArrayStream* s) {
  return ((struct foreign_stream*)s->private_data)->text;
}

static void device_release(struct ArrowDeviceArrayStream* s) {
  struct foreign_stream* f = s->private_data;
  s->release = NULL;
  release_of(f);
}

void foreign_stream_give(struct foreign_stream* s, struct ArrowDeviceArrayStream* out) {
  *out = (struct ArrowDeviceArrayStream){s->device_type, device_schema, device_next, device_error, device_release, s};
}

static int plain_schema(struct ArrowArrayStream* s, struct ArrowSchema* out) { return schema_of(s->private_data, out); }

static int plain_next(struct ArrowArrayStream* s, struct ArrowArray* out) {
  struct ArrowDeviceArray device;
  int code = next_of(s->private_data, &device);
  if (code == 0) *out = device.array;
  return code;
}

static const char* plain_error(struct ArrowArrayStream* s) { return ((struct foreign_stream*)s->private_data)->text; }

static void plain_release(struct ArrowArrayStream* s) {
  struct foreign_stream* f = s->private_data;
  s->release = NULL;
  release_of(f);
}

void foreign_stream_give_plain(struct foreign_stream* s, struct ArrowArrayStream* out) {
  *out = (struct ArrowArrayStream){plain_schema, plain_next, plain_error, plain_release, s};
}

void foreign_stream_let(struct foreign_stream* s) { __atomic_store_n(&s->let, 1, __ATOMIC_RELEASE); }
