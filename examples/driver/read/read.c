// Reads the streams of the driver, which is written in Go, and adds up the column of each.
#include <stdio.h>

#include "libdriver.h"  // which the go command writes beside the library

static void print_total(struct ArrowArrayStream* stream) {
  struct ArrowArray batch;
  int64_t sum = 0;
  int code;
  while (!(code = stream->get_next(stream, &batch)) && batch.release) {
    struct ArrowArray* column = batch.children[0];
    const int64_t* values = (const int64_t*)column->buffers[1] + column->offset;
    for (int64_t i = 0; i < column->length; i++) sum += values[i];
    batch.release(&batch);
  }
  if (code)
    printf("error %d: %s\n", code, stream->get_last_error(stream));
  else
    printf("total: %lld\n", (long long)sum);
  stream->release(stream);
}

int main(void) {
  uintptr_t driver;
  char text[100];
  int code = driver_open(-1, &driver, text, sizeof text);
  printf("error %d: %s\n", code, text);
  if (driver_open(3, &driver, text, sizeof text)) return 1;
  struct ArrowArrayStream first, second;
  if (driver_read(driver, &first, text, sizeof text) || driver_read(driver, &second, text, sizeof text)) return 1;
  if (driver_close(driver, text, sizeof text)) return 1;  // before the streams, which hold what they need
  print_total(&first);
  print_total(&second);
  code = driver_close(driver, text, sizeof text);
  printf("error %d: %s\n", code, text);
  return 0;
}
