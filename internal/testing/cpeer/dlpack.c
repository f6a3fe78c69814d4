#include "dlpack.h"

#include "cpeer.h"

#include <stddef.h>
#include <stdlib.h>

static void count(struct cpeer_tensor* t, void* self, void* expected) {
  __atomic_fetch_add(&t->deleted, 1, __ATOMIC_RELAXED);
  if (self != expected) __atomic_fetch_add(&t->foreign, 1, __ATOMIC_RELAXED);
}

static void delete_legacy(DLManagedTensor* self) {
  struct cpeer_tensor* t = self->manager_ctx;
  count(t, self, &t->legacy);
}

static void delete_versioned(DLManagedTensorVersioned* self) {
  struct cpeer_tensor* t = self->manager_ctx;
  count(t, self, &t->versioned);
}

struct cpeer_tensor* cpeer_tensor_new(void) {
  struct cpeer_tensor* t = calloc(1, sizeof(*t));
  if (t == NULL) abort();
  t->legacy.manager_ctx = t->versioned.manager_ctx = t;
  t->legacy.deleter = delete_legacy;
  t->versioned.deleter = delete_versioned;
  t->versioned.version.major = 1;
  return t;
}

static double element(const char* p, DLDataType type) {
  if (type.code == 0 && type.bits == 32) return *(const int32_t*)p;
  if (type.code == 0 && type.bits == 64) return (double)*(const int64_t*)p;
  if (type.code == 2 && type.bits == 32) return *(const float*)p;
  return -1;
}

static double sum(const DLTensor* t, int32_t dim, const char* p) {
  if (dim == t->ndim) return element(p, t->dtype);
  double total = 0;
  for (int64_t i = 0; i < t->shape[dim]; i++) total += sum(t, dim + 1, p + i * t->strides[dim] * (t->dtype.bits / 8));
  return total;
}

double cpeer_tensor_sum(const DLTensor* tensor) {
  return sum(tensor, 0, (const char*)tensor->data + tensor->byte_offset);
}

static void* call_legacy(void* t) {
  ((DLManagedTensor*)t)->deleter(t);
  return NULL;
}

static void* call_versioned(void* t) {
  ((DLManagedTensorVersioned*)t)->deleter(t);
  return NULL;
}

int cpeer_delete_on_thread(DLManagedTensor* tensor) { return cpeer_on_thread(call_legacy, tensor); }

int cpeer_delete_versioned_on_thread(DLManagedTensorVersioned* tensor) {
  return cpeer_on_thread(call_versioned, tensor);
}
