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

static void destroy(const char* name, void* memory) {
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

static void destroy_capsule(void* capsule) {
  const char* name = python_capsule_name(capsule);
  void* memory = name ? python_capsule_pointer(capsule, name) : NULL;
  if (memory != NULL) destroy(name, memory);
}

/* The names of capsules, which keep a pointer to theirs. */
static const char* const names[] = {"arrow_schema",       "arrow_array", "arrow_device_array",
                                    "arrow_array_stream", "dltensor",    "arrow_device_array_stream",
                                    "dltensor_versioned"};

static const char* name_of(const char* text) {
  for (size_t i = 0; text != NULL && i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], text) == 0) return names[i];
  return NULL;
}

static void* address_at(const uint8_t* encoded) { /* little endian, as numbers of a reply are */
  uint64_t address = 0;
  for (int i = 7; i >= 0; i--) address = address << 8 | encoded[i];
  return (void*)(uintptr_t)address;
}

/* A reply is R and an address, or R and a list of them: "RI........" or "RL....I........I........". */
enum { RESULT = 1, LIST_HEAD = 5, INT_HEAD = 1, INT = 9, MOST = 2 };

void* arrowdevice_v1_take_capsules(uint8_t** reply, uint64_t* size, const char* first, const char* second) {
  const char* wanted[MOST] = {name_of(first), name_of(second)};
  const uint8_t* at = *reply + RESULT;
  void *addresses[MOST], *capsules[MOST];
  int64_t count = second == NULL ? 1 : MOST, made = 0;
  if (*at == 'L') at += LIST_HEAD;
  for (int64_t i = 0; i < count; i++) addresses[i] = address_at(at + i * INT + INT_HEAD);
  free(*reply);
  *reply = NULL;
  *size = 0;
  while (made < count) {
    capsules[made] = python_capsule_new(addresses[made], wanted[made], destroy_capsule);
    if (capsules[made] == NULL) break;
    made++;
  }
  if (made == count) return python_tuple(capsules, count);
  for (int64_t i = 0; i < made; i++) python_drop(capsules[i]);
  for (int64_t i = made; i < count; i++) destroy(wanted[i], addresses[i]);
  return NULL;
}

/* A capsule of a handle has memory of its own: a capsule's pointer is not NULL, and a handle has 64 bits. */
static const char handle_name[] = "arrowdevice_handle";

static void destroy_handle(void* capsule) {
  uint64_t* memory = python_capsule_pointer(capsule, handle_name);
  if (memory == NULL) return;
  uint64_t handle = *memory;
  free(memory);
  void* state = python_unlock(); /* what is released may wait for a thread that waits for the GIL */
  arrowdevice_v1_release(handle);
  python_lock(state);
}

void* arrowdevice_v1_own(uint64_t handle) {
  uint64_t* memory = malloc(sizeof *memory);
  if (memory == NULL) return NULL;
  *memory = handle;
  void* capsule = python_capsule_new(memory, handle_name, destroy_handle);
  if (capsule == NULL) free(memory);
  return capsule;
}
