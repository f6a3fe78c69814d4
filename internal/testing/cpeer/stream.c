#include "stream.h"

#include "cpeer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The C memory of one batch: both structs, and all that they point to. */
struct batch {
  struct cpeer_stream* producer;
  int64_t structs; /* not released */
  struct ArrowArray column;
  struct ArrowArray* children[1];
  const void* root_buffers[1];
  const void* column_buffers[2];
  int64_t value;
};

static void drop(struct batch* b) {
  if (__atomic_sub_fetch(&b->structs, 1, __ATOMIC_ACQ_REL) != 0) return;
  __atomic_sub_fetch(&b->producer->live, 1, __ATOMIC_RELAXED);
  free(b);
}

static void release_column(struct ArrowArray* a) {
  a->release = NULL;
  drop(a->private_data);
}

static void release_root(struct ArrowArray* a) {
  struct batch* b = a->private_data;
  if (b->column.release != NULL) b->column.release(&b->column);
  a->release = NULL;
  drop(b);
}

static int export_batch(struct cpeer_stream* producer, int64_t value, struct ArrowArray* out) {
  struct batch* b = calloc(1, sizeof *b);
  if (b == NULL) return ENOMEM;
  b->producer = producer;
  b->structs = 2;
  b->value = value;
  b->column_buffers[1] = &b->value;
  b->column = (struct ArrowArray){
      .length = 1, .n_buffers = 2, .buffers = b->column_buffers, .release = release_column, .private_data = b};
  b->children[0] = &b->column;
  *out = (struct ArrowArray){.length = 1,
                             .n_buffers = 1,
                             .n_children = 1,
                             .buffers = b->root_buffers,
                             .children = b->children,
                             .release = release_root,
                             .private_data = b};
  __atomic_add_fetch(&producer->live, 1, __ATOMIC_RELAXED);
  return 0;
}

static void release_nothing(struct ArrowSchema* s) { s->release = NULL; }

static int get_schema(struct ArrowArrayStream* stream, struct ArrowSchema* out) {
  static struct ArrowSchema column;
  static struct ArrowSchema* children[] = {&column};
  (void)stream;
  column = (struct ArrowSchema){.format = "l", .name = "n", .release = release_nothing};
  *out = (struct ArrowSchema){
      .format = "+s", .name = "", .n_children = 1, .children = children, .release = release_nothing};
  return 0;
}

static int get_next(struct ArrowArrayStream* stream, struct ArrowArray* out) {
  struct cpeer_stream* p = stream->private_data;
  if (p->next == p->fail_at) return p->code;
  if (p->next == p->batches) {
    memset(out, 0xdd, sizeof *out); /* released is all that counts */
    out->release = NULL;
    return 0;
  }
  return export_batch(p, p->next++, out);
}

static const char* get_last_error(struct ArrowArrayStream* stream) {
  return ((struct cpeer_stream*)stream->private_data)->text;
}

static void release_stream(struct ArrowArrayStream* stream) {
  ((struct cpeer_stream*)stream->private_data)->released++;
  stream->release = NULL;
}

void cpeer_stream_export(struct cpeer_stream* producer, struct ArrowArrayStream* out) {
  *out = (struct ArrowArrayStream){get_schema, get_next, get_last_error, release_stream, producer};
}

static int fits(const struct ArrowSchema* s) {
  return strcmp(s->format, "+s") == 0 && s->n_children == 1 && strcmp(s->children[0]->format, "l") == 0;
}

enum { KEPT = 1024 };

void cpeer_stream_drain_here(struct ArrowArrayStream* stream, struct cpeer_drained* out) {
  struct ArrowArray columns[KEPT];
  struct ArrowSchema schema;
  out->schema_code = stream->get_schema(stream, &schema);
  while (out->schema_code == 0 && out->batches < KEPT) {
    struct ArrowArray batch;
    out->next_code = stream->get_next(stream, &batch);
    if (out->next_code != 0 || batch.release == NULL) break;
    columns[out->batches] = *batch.children[0];
    batch.children[0]->release = NULL; /* moved */
    batch.release(&batch);
    out->batches++;
  }
  if (out->schema_code != 0 || out->next_code != 0) out->text = stream->get_last_error(stream) != NULL;
  stream->release(stream);
  if (out->schema_code == 0) {
    out->format = fits(&schema);
    schema.release(&schema);
  }
  for (int64_t i = 0; i < out->batches; i++) {
    out->sum += ((const int64_t*)columns[i].buffers[1])[columns[i].offset];
    columns[i].release(&columns[i]);
  }
}

struct job {
  struct ArrowArrayStream* stream;
  struct cpeer_drained* out;
};

static void* run(void* p) {
  struct job* job = p;
  cpeer_stream_drain_here(job->stream, job->out);
  return NULL;
}

int cpeer_stream_drain(struct ArrowArrayStream* stream, struct cpeer_drained* out) {
  struct job job = {stream, out};
  return cpeer_on_thread(run, &job);
}
