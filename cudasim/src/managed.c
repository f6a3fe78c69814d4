/* Managed memory: every device and the host use it at one address. */
#include "sim.h"

CUresult managed_alloc(CUdeviceptr *address, size_t size, unsigned flags) {
  struct context *c;
  CUresult r = current_context(&c);
  if (r) return r;
  if (!address || !size || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  if (!sim.options.managed) return CUDA_ERROR_NOT_SUPPORTED;
  struct block *b = block_new(MANAGED_MEMORY, c, c->device, size);
  b->flags = flags;
  r = block_make(b);
  if (!r) *address = b->address;
  return r;
}

static CUresult find(CUdeviceptr address, size_t size, struct block **out) {
  struct block *b = block_at(address);
  if (!size || !b || b->memory != MANAGED_MEMORY || size > b->size - (address - b->address))
    return CUDA_ERROR_INVALID_VALUE;
  *out = b;
  return CUDA_SUCCESS;
}

static CUresult ordinal(CUmemLocation where, CUdevice *device) {
  *device = where.type == CU_MEM_LOCATION_TYPE_DEVICE ? where.id : CU_DEVICE_CPU;
  bool valid = where.type >= CU_MEM_LOCATION_TYPE_DEVICE && where.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult managed_check(CUdeviceptr address, size_t size) {
  struct block *b;
  return find(address, size, &b);
}

CUresult managed_check_place(CUmemLocation where) {
  CUdevice device;
  CUresult r = ordinal(where, &device);
  if (r) return r;
  return device == CU_DEVICE_CPU || device_valid(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* There is nowhere to move it to: advice is only checked. */
CUresult managed_advise(CUdeviceptr address, size_t size, int advice, CUdevice device) {
  struct context *c;
  struct block *b;
  CUresult r = current_context(&c);
  if (!r) r = find(address, size, &b);
  if (r) return r;
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  if (advice >= CU_MEM_ADVISE_SET_PREFERRED_LOCATION && advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
    return device == CU_DEVICE_CPU || (device_valid(device) && sim.options.concurrent_managed_access)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_DEVICE;
  return CUDA_SUCCESS;
}

CUresult managed_advise_v2(CUdeviceptr address, size_t size, int advice, CUmemLocation where) {
  CUdevice device = CU_DEVICE_CPU;
  bool anywhere = advice < CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
  if (!anywhere && ordinal(where, &device)) return CUDA_ERROR_INVALID_VALUE;
  return managed_advise(address, size, advice, device);
}

CUresult managed_prefetch(CUdeviceptr address, size_t size, CUdevice device, CUstream stream) {
  struct stream *s;
  struct block *b;
  CUresult r = stream_find_current_ready(stream, FOR_WORK, &s);
  if (!r) r = find(address, size, &b);
  if (r) return r;
  if (device != CU_DEVICE_CPU && !device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!sim.options.concurrent_managed_access) return CUDA_ERROR_INVALID_DEVICE; /* the stream's too */
  struct op *op = op_new(OP_PREFETCH);
  op_touch(op, b);
  return op_push(s, op);
}

CUresult managed_prefetch_v2(CUdeviceptr address, size_t size, CUmemLocation where, unsigned flags, CUstream stream) {
  CUdevice device;
  if (flags || ordinal(where, &device)) return CUDA_ERROR_INVALID_VALUE;
  return managed_prefetch(address, size, device, stream);
}
