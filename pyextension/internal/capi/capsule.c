/* Capsules. Their destructors are C, and not a callback of ctypes, because Python also destroys capsules
 * while an exception is propagating, when no Python code may run. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../../internal/abi/abi.h"
#include "gil.h"
#include "module.h"

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

/* The names of C structs in replies, by their positions. A capsule keeps a pointer to its name. */
static const char* const names[] = {
    "arrow_schema", "arrow_array",       "arrow_device_array", "arrow_array_stream", "arrow_device_array_stream",
    "dltensor",     "dltensor_versioned"};

static void destroy_capsule(PyObject* capsule) {
  const char* name = PyCapsule_GetName(capsule);
  void* memory = name ? PyCapsule_GetPointer(capsule, name) : NULL;
  if (memory != NULL) destroy(name, memory);
}

void struct_destroy(uint8_t kind, void* memory) { destroy(names[kind], memory); }

PyObject* capsule_of_struct(uint8_t kind, void* memory) {
  PyObject* capsule = PyCapsule_New(memory, names[kind], destroy_capsule);
  if (capsule == NULL) struct_destroy(kind, memory);
  return capsule;
}

/* A capsule of a number has memory of its own: a capsule's pointer is not NULL, and a number has 64 bits. */
static PyObject* capsule_of_number(uint64_t number, const char* name, void (*destructor)(PyObject*)) {
  uint64_t* memory = malloc(sizeof *memory);
  if (memory == NULL) return PyErr_NoMemory();
  *memory = number;
  PyObject* capsule = PyCapsule_New(memory, name, destructor);
  if (capsule == NULL) free(memory);
  return capsule;
}

/* Calls Go with the number of a capsule that ends, and without the GIL: what Go releases may wait for a thread that
 * waits for it. */
static void end_number(PyObject* capsule, const char* name, void (*end)(uint64_t)) {
  uint64_t* memory = PyCapsule_GetPointer(capsule, name);
  if (memory == NULL) return;
  uint64_t number = *memory;
  free(memory);
  if (number == 0) return;
  void* state = python_unlock();
  end(number);
  python_lock(state);
}

const char handle_name[] = "arrowdevice_handle";
const char call_name[] = "arrowdevice_call";

uint64_t* number_of_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name) || PyCapsule_GetName(capsule) != name) return NULL; /* another library's */
  return PyCapsule_GetPointer(capsule, name);
}

static void destroy_handle(PyObject* capsule) { end_number(capsule, handle_name, arrowdevice_release); }

PyObject* capsule_of_handle(uint64_t handle) { return capsule_of_number(handle, handle_name, destroy_handle); }

static void destroy_call(PyObject* capsule) { end_number(capsule, call_name, arrowdevice_cancel); }

PyObject* capsule_of_call(uint64_t number) { return capsule_of_number(number, call_name, destroy_call); }
