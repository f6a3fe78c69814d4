// Reads the streams of the driver, which is written in Go, and adds up the column of each.
#include <stdio.h>

#include "libdriver.h"  // which the go command writes beside the library

static int64_t total(struct ArrowArrayStream* stream) {
  struct ArrowArray batch;
  int64_t sum = 0;
  while (stream->get_next(stream, &batch) == 0 && batch.release) {
    struct ArrowArray* column = batch.children[0];
    const int64_t* values = (const int64_t*)column->buffers[1] + column->offset;
    for (int64_t i = 0; i < column->length; i++) sum += values[i];
    batch.release(&batch);
  }
  stream->release(stream);
  return sum;
}

int main(void) {
  uintptr_t driver;
  char text[100];
  if (driver_open(-1, &driver, text, sizeof text)) printf("an error: %s\n", text);
  if (driver_open(3, &driver, text, sizeof text)) return 1;
  struct ArrowArrayStream first, second;
  if (driver_read(driver, &first, text, sizeof text) || driver_read(driver, &second, text, sizeof text)) return 1;
  driver_close(driver);  // before the streams, which hold what they need
  printf("totals: %lld, %lld\n", (long long)total(&first), (long long)total(&second));
  if (driver_read(driver, &first, text, sizeof text)) printf("an error: %s\n", text);
  return 0;
}
