/* A producer whose release callback notes whether its thread holds Python's lock. */
#include <stddef.h>

#include "../../internal/abi/abi.h"

/* Of the Python that loads this. */
int PyGILState_Check(void);

static int held;
static int releases;

static void release(struct ArrowArray* array) {
  held = PyGILState_Check();
  releases++;
  array->release = NULL;
}

/* Fills *out with an array of three nulls, which has no memory. */
void gilproducer_export(struct ArrowDeviceArray* out) {
  *out = (struct ArrowDeviceArray){
      .array = {.length = 3, .null_count = 3, .release = release},
      .device_id = -1,
      .device_type = ARROW_DEVICE_CPU,
  };
}

/* Whether the last release held the lock. */
int gilproducer_held(void) { return held; }

int gilproducer_releases(void) { return releases; }
