/* Device memory. */
#include "sim.h"

CUresult memory_info(size_t *available, size_t *total) {
  struct context *c;
  if (!available || !total) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = current_context(&c);
  if (r) return r;
  *available = sim.options.memory - sim.devices[c->device].bytes;
  *total = sim.options.memory;
  return CUDA_SUCCESS;
}

CUresult memory_alloc(CUdeviceptr *address, size_t size) {
  struct context *c;
  CUresult r = current_context(&c);
  if (r) return r;
  if (!address || !size) return CUDA_ERROR_INVALID_VALUE;
  struct block *b = block_new(DEVICE_MEMORY, c, c->device, size);
  r = block_make(b);
  if (!r) *address = b->address;
  return r;
}

/* Freed once the device is idle: queued work may use it. */
CUresult memory_free(CUdeviceptr address) {
  if (!address) return CUDA_SUCCESS;
  struct block *b = block_at(address);
  if ((!block_on_device(b) && !(b && b->pool)) || b->address != address || ipc_imported(b))
    return CUDA_ERROR_INVALID_VALUE;
  return block_retire(b);
}

CUresult memory_range(CUdeviceptr *start, size_t *size, CUdeviceptr address) {
  struct context *c;
  CUresult r = current_context(&c);
  if (r) return r;
  const struct block *b = block_at(address);
  if (!b) return CUDA_ERROR_NOT_FOUND;
  if (start) *start = b->address;
  if (size) *size = b->size;
  return CUDA_SUCCESS;
}
