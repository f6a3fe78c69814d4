/* Places in streams, and waiting for them. A point refers to its stream; one that
 * is passed already is not worth keeping. */
#include "sim.h"

#include <stdlib.h>

bool point_pending(struct point p) { return p.stream && p.stream->done < p.seq; }

void point_set(struct point *p, struct stream *stream, uint64_t seq) {
  struct stream *old = p->stream;
  if (stream) stream->object.refs++;
  *p = (struct point){stream, seq};
  if (old) object_unref(&old->object);
}

void points_add(struct points *points, struct point p) {
  if (!point_pending(p)) return;
  points->at = grow(points->at, points->count, &points->room, sizeof *points->at);
  p.stream->object.refs++;
  points->at[points->count++] = p;
}

/* All that was queued so far. */
void points_add_all(struct points *points, struct stream *stream) {
  points_add(points, (struct point){stream, stream->queued});
}

void points_add_context(struct points *points, const struct context *context) {
  for (struct stream *s = context->streams; s; s = s->next) points_add_all(points, s);
}

void points_add_device(struct points *points, int device) {
  for (const struct context *c = sim.contexts; c; c = c->next)
    if (device < 0 || c->device == device) points_add_context(points, c);
}

void points_wait(struct points *points) {
  for (int i = 0; i < points->count; i++) stream_demand(points->at[i].stream, points->at[i].seq);
  for (int i = 0; i < points->count; i++)
    while (point_pending(points->at[i])) pthread_cond_wait(&points->at[i].stream->changed, &sim.lock);
}

void points_free(struct points *points) {
  for (int i = 0; i < points->count; i++) object_unref(&points->at[i].stream->object);
  free(points->at);
  *points = (struct points){0};
}
