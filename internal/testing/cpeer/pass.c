#include "pass.h"

#include <errno.h>
#include <stddef.h>

void cpeer_pass_schema(struct ArrowSchema* schema) { schema->release(schema); }

void cpeer_pass_array(struct ArrowArray* array) { array->release(array); }

void cpeer_pass_device_array(struct ArrowDeviceArray* array) { array->array.release(&array->array); }

/* Reads all batches of the stream. */
void cpeer_pass_stream(struct ArrowArrayStream* stream) {
  struct ArrowArray batch;
  while (stream->get_next(stream, &batch) == 0 && batch.release != NULL) batch.release(&batch);
  stream->release(stream);
}

void cpeer_pass_device_stream(struct ArrowDeviceArrayStream* stream) {
  struct ArrowDeviceArray batch;
  while (stream->get_next(stream, &batch) == 0 && batch.array.release != NULL) batch.array.release(&batch.array);
  stream->release(stream);
}

void cpeer_pass_handler(struct ArrowAsyncDeviceStreamHandler* handler) {
  handler->on_error(handler, EIO, "no stream", NULL);
  handler->release(handler);
}
