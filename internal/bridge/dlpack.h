/* DLPack's structs, and the callbacks of those that we export and import. A tensor that we
 * export holds the ArrowArray of the exported array; a tensor that we import is held by an
 * ArrowArray, whose release calls the tensor's deleter. Structs are passed as words; see
 * bridge.h. The numbers are those of DLPack 1. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "bridge.h"

struct cdevice_v0_dl_tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

/* DLManagedTensor, the form before version 1. */
struct cdevice_v0_dl_managed {
  struct cdevice_v0_dl_tensor tensor;
  void* manager_ctx;
  void (*deleter)(struct cdevice_v0_dl_managed*);
};

/* DLManagedTensorVersioned. The members up to deleter keep their places in later major versions. */
struct cdevice_v0_dl_versioned {
  uint32_t major;
  uint32_t minor;
  void* manager_ctx;
  void (*deleter)(struct cdevice_v0_dl_versioned*);
  uint64_t flags;
  struct cdevice_v0_dl_tensor tensor;
};

_Static_assert(sizeof(struct cdevice_v0_dl_tensor) == 48, "DLTensor");
_Static_assert(offsetof(struct cdevice_v0_dl_tensor, ndim) == 16, "DLTensor.ndim");
_Static_assert(offsetof(struct cdevice_v0_dl_tensor, lanes) == 22, "DLTensor.dtype.lanes");
_Static_assert(offsetof(struct cdevice_v0_dl_tensor, byte_offset) == 40, "DLTensor.byte_offset");
_Static_assert(sizeof(struct cdevice_v0_dl_managed) == 64, "DLManagedTensor");
_Static_assert(offsetof(struct cdevice_v0_dl_managed, deleter) == 56, "DLManagedTensor.deleter");
_Static_assert(sizeof(struct cdevice_v0_dl_versioned) == 80, "DLManagedTensorVersioned");
_Static_assert(offsetof(struct cdevice_v0_dl_versioned, deleter) == 16, "DLManagedTensorVersioned.deleter");
_Static_assert(offsetof(struct cdevice_v0_dl_versioned, tensor) == 32, "DLManagedTensorVersioned.dl_tensor");

/* The block of a tensor that we export; the tensor, its shape and strides follow it. */
struct cdevice_v0_dl_export {
  struct cdevice_v0_block head;
  struct ArrowArray array; /* released by the deleter */
};

/* The block of the array that we make of a tensor; the structs of its children follow it. */
struct cdevice_v0_dl_import {
  struct cdevice_v0_block head;
  uint64_t* tensor;
  uint64_t versioned; /* 1: a DLManagedTensorVersioned */
};

/* The deleters of exported tensors, whose manager_ctx is a struct cdevice_v0_dl_export. */
void cdevice_v0_dl_delete(struct cdevice_v0_dl_managed* tensor);
void cdevice_v0_dl_delete_versioned(struct cdevice_v0_dl_versioned* tensor);

/* The release callbacks of an array whose private_data is a struct cdevice_v0_dl_import, and
 * of the arrays below it, which does nothing: the root ends all. */
void cdevice_v0_dl_release(struct ArrowArray* array);
void cdevice_v0_dl_release_child(struct ArrowArray* array);

/* Calls the deleter of a tensor, unless it is NULL. */
void cdevice_v0_dl_call_deleter(uint64_t* tensor, uint64_t versioned);
