/* A producer and a consumer of DLPack tensors, with DLPack's structs as a C program sees them. */
#pragma once

#include <stdint.h>

typedef struct {
  int32_t device_type;
  int32_t device_id;
} DLDevice;

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

typedef struct {
  uint32_t major;
  uint32_t minor;
} DLPackVersion;

typedef struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* A tensor in C memory, in both forms, whose deleters count their calls and free nothing. */
struct cpeer_tensor {
  DLManagedTensor legacy;
  DLManagedTensorVersioned versioned;
  int64_t shape[64];
  int64_t strides[64];
  int64_t deleted; /* calls of either deleter; atomic */
  int64_t foreign; /* calls with another self */
};

struct cpeer_tensor* cpeer_tensor_new(void);

/* The sum of the elements of a tensor in CPU memory, of int32, int64 or float32, by its strides; -1 for other types. */
double cpeer_tensor_sum(const DLTensor* tensor);

/* Call the deleter on a new thread, and wait for it. They return an errno. */
int cpeer_delete_on_thread(DLManagedTensor* tensor);
int cpeer_delete_versioned_on_thread(DLManagedTensorVersioned* tensor);
