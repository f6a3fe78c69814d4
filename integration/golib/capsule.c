#include "capsule.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "../../internal/abi/abi.h"
#include "../../internal/bridge/dlpack.h"

static int64_t structs = 0; /* atomic: allocated and not freed */

int64_t golib_struct_count(void) { return __atomic_load_n(&structs, __ATOMIC_RELAXED); }

void* golib_new_struct(size_t size) {
  void* p = calloc(1, size);
  if (p != NULL) __atomic_add_fetch(&structs, 1, __ATOMIC_RELAXED);
  return p;
}

void golib_free_struct(void* p) {
  free(p);
  __atomic_sub_fetch(&structs, 1, __ATOMIC_RELAXED);
}

/* PyCapsule_GetPointer of the Python that this process is: looked up when it is
 * needed, so that building takes no Python headers. */
static void* capsule_pointer(void* capsule, const char* name) {
  void* (*get_pointer)(void*, const char*);
  *(void**)&get_pointer = dlsym(RTLD_DEFAULT, "PyCapsule_GetPointer");
  return get_pointer(capsule, name);
}

void golib_destroy_schema_capsule(void* capsule) {
  struct ArrowSchema* schema = capsule_pointer(capsule, "arrow_schema");
  if (schema->release != NULL) schema->release(schema);
  golib_free_struct(schema);
}

void golib_destroy_array_capsule(void* capsule) {
  struct ArrowArray* array = capsule_pointer(capsule, "arrow_array");
  if (array->release != NULL) array->release(array);
  golib_free_struct(array);
}

void golib_destroy_device_array_capsule(void* capsule) {
  struct ArrowDeviceArray* array = capsule_pointer(capsule, "arrow_device_array");
  if (array->array.release != NULL) array->array.release(&array->array);
  golib_free_struct(array);
}

void golib_destroy_stream_capsule(void* capsule) {
  struct ArrowArrayStream* stream = capsule_pointer(capsule, "arrow_array_stream");
  if (stream->release != NULL) stream->release(stream);
  golib_free_struct(stream);
}

/* The tensor of a capsule that no consumer has renamed, or NULL. */
static void* tensor_of(void* capsule, const char* name) {
  int (*is_valid)(void*, const char*);
  *(void**)&is_valid = dlsym(RTLD_DEFAULT, "PyCapsule_IsValid");
  return is_valid(capsule, name) ? capsule_pointer(capsule, name) : NULL;
}

void golib_destroy_dltensor_capsule(void* capsule) {
  struct cdevice_v0_dl_managed* tensor = tensor_of(capsule, "dltensor");
  if (tensor != NULL) tensor->deleter(tensor);
}

void golib_destroy_dltensor_versioned_capsule(void* capsule) {
  struct cdevice_v0_dl_versioned* tensor = tensor_of(capsule, "dltensor_versioned");
  if (tensor != NULL) tensor->deleter(tensor);
}
