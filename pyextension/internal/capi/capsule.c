/* The destructor of capsules. It is C, and not a callback of ctypes, because Python also destroys capsules
 * while an exception is propagating, when no Python code may run. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../../internal/abi/abi.h"
#include "capi.h"
#include "python.h"

/* The parts of DLPack's structs that a destructor needs; their layout is fixed since version 0.2, and 1.0. */
struct managed_tensor {
  char tensor[48];
  void* manager_ctx;
  void (*deleter)(struct managed_tensor*);
};

struct managed_tensor_versioned {
  uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(struct managed_tensor_versioned*);
};

void arrowdevice_v1_destroy_capsule(void* capsule) {
  const char* name = python_capsule_name(capsule);
  void* memory = name ? python_capsule_pointer(capsule, name) : NULL;
  if (memory == NULL) return;
  if (strcmp(name, "arrow_schema") == 0) {
    struct ArrowSchema* schema = memory;
    if (schema->release != NULL) schema->release(schema);
    free(schema);
  } else if (strcmp(name, "arrow_array") == 0) {
    struct ArrowArray* array = memory;
    if (array->release != NULL) array->release(array);
    free(array);
  } else if (strcmp(name, "arrow_device_array") == 0) {
    struct ArrowDeviceArray* array = memory;
    if (array->array.release != NULL) array->array.release(&array->array);
    free(array);
  } else if (strcmp(name, "arrow_array_stream") == 0) {
    struct ArrowArrayStream* stream = memory;
    if (stream->release != NULL) stream->release(stream);
    free(stream);
  } else if (strcmp(name, "arrow_device_array_stream") == 0) {
    struct ArrowDeviceArrayStream* stream = memory;
    if (stream->release != NULL) stream->release(stream);
    free(stream);
  } else if (strcmp(name, "dltensor") == 0) { /* the deleter frees the struct as well */
    struct managed_tensor* tensor = memory;
    if (tensor->deleter != NULL) tensor->deleter(tensor);
  } else if (strcmp(name, "dltensor_versioned") == 0) {
    struct managed_tensor_versioned* tensor = memory;
    if (tensor->deleter != NULL) tensor->deleter(tensor);
  }
}
