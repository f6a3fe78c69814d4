/* Which device reaches which memory.
 *
 * Copies reach memory of cuMemAlloc on every device: where a device has no access to
 * another's, the driver goes through the host. Memory of a pool they reach only from
 * the devices that the pool gives access to, even if cuCtxEnablePeerAccess allowed more;
 * cuMemcpyPeer names the context of each end and goes there itself. */
#include "sim.h"

/* The attribute ACCESS_FLAGS of a context: the accesses that kernels could make. */
int reach_flags(const struct context *c, const struct block *b) {
  if (b->memory != DEVICE_MEMORY || b->device == c->device) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (b->pool) return b->pool->access[c->device];
  return c->peers >> b->device & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

CUresult reach_check(const struct context *c, const struct block *b) {
  bool reached = !b || !b->pool || b->pool->access[c->device] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return reached ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
