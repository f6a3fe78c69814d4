/* Queries about an address. */
#include "sim.h"

#include <string.h>

/* As wide as the driver writes it: a boolean is an int. */
static size_t size_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return 4;
    default: return 8;
  }
}

/* Of memory that the driver does not know. */
static uint64_t bits_of_unknown(CUpointer_attribute attribute) {
  return attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (uint32_t)CU_DEVICE_INVALID : 0;
}

/* c is the current context, of which ACCESS_FLAGS is asked. */
static uint64_t bits_of(const struct block *b, CUpointer_attribute attribute, CUdeviceptr address,
                        const struct context *c) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: return b->pool ? 0 : b->context->object.handle;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return b->memory == DEVICE_MEMORY || b->memory == MANAGED_MEMORY ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return address;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: return b->memory == DEVICE_MEMORY ? 0 : address;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return b->sync_memops;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return b->id;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return b->memory == MANAGED_MEMORY;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return (uint64_t)b->device;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return b->address;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return b->size;
    case CU_POINTER_ATTRIBUTE_MAPPED: return 1;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return (uint64_t)reach_flags(c, b);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return b->pool ? b->pool->object.handle : 0;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return ipc_capable(b);
    default: return 0; /* not shareable in other ways, nor by RDMA */
  }
}

static CUresult check(CUpointer_attribute attribute, struct context **c) {
  if (attribute < CU_POINTER_ATTRIBUTE_CONTEXT || attribute > CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID)
    return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS) return current_context(c);
  return attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static void write(void *out, CUpointer_attribute attribute, uint64_t bits) {
  memcpy(out, &bits, size_of(attribute)); /* little endian */
}

CUresult pointer_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  struct context *c = NULL;
  CUresult r = value ? check(attribute, &c) : CUDA_ERROR_INVALID_VALUE;
  if (r) return r;
  const struct block *b = block_at(address);
  if (!b || (attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER && b->memory == DEVICE_MEMORY))
    return CUDA_ERROR_INVALID_VALUE;
  write(value, attribute, bits_of(b, attribute, address, c));
  return CUDA_SUCCESS;
}

/* Many at once, and no error if the address is not the driver's. */
CUresult pointer_attributes(unsigned count, CUpointer_attribute *attributes, void **values, CUdeviceptr address) {
  struct context *c = NULL;
  if (!attributes || !values) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; i++) {
    CUresult r = values[i] ? check(attributes[i], &c) : CUDA_ERROR_INVALID_VALUE;
    if (r) return r;
  }
  const struct block *b = block_at(address);
  for (unsigned i = 0; i < count; i++)
    write(values[i], attributes[i], b ? bits_of(b, attributes[i], address, c) : bits_of_unknown(attributes[i]));
  return CUDA_SUCCESS;
}

CUresult pointer_set_attribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  struct block *b = block_at(address);
  if (!value || !b || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  b->sync_memops = *(const int *)value != 0;
  return CUDA_SUCCESS;
}
