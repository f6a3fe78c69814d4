/* Page-locked memory of the host. Devices use it at the address that the host uses. */
#include "sim.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* A size of zero is not allocated. */
CUresult host_alloc_flags(void **address, size_t size, unsigned flags) {
  struct context *c;
  CUresult r = current_context(&c);
  if (r) return r;
  if (!address || flags & ~(unsigned)CU_MEMHOSTALLOC_MASK) return CUDA_ERROR_INVALID_VALUE;
  *address = NULL;
  if (!size) return CUDA_SUCCESS;
  struct block *b = block_new(HOST_MEMORY, c, c->device, size);
  b->flags = flags;
  r = block_make(b);
  if (!r) *address = (void *)b->address;
  return r;
}

CUresult host_alloc(void **address, size_t size) { return host_alloc_flags(address, size, 0); }

CUresult host_free(void *address) {
  if (!address) return CUDA_SUCCESS;
  struct block *b = block_at((uintptr_t)address);
  if (!b || b->memory != HOST_MEMORY || b->pool || b->address != (uintptr_t)address) return CUDA_ERROR_INVALID_VALUE;
  return block_retire(b);
}

/* msync reports whether there is memory; with MS_ASYNC it does nothing else. */
static bool is_mapped(uintptr_t address, size_t size) {
  uintptr_t start = address / sim.page * sim.page;
  return !msync((void *)start, address + size - start, MS_ASYNC);
}

/* Whether the pages can be written: the device could write them otherwise where the host cannot. */
static bool is_writable(uintptr_t address, size_t size) {
  FILE *maps = fopen("/proc/self/maps", "re");
  if (!maps) return true;
  char line[512], write;
  unsigned long long start, end;
  bool writable = true, head = true; /* the rest of a long line is not the start of one */
  while (writable && fgets(line, sizeof line, maps)) {
    if (head && sscanf(line, "%llx-%llx %*c%c", &start, &end, &write) == 3 && start < address + size && address < end)
      writable = write == 'w';
    head = strchr(line, '\n');
  }
  fclose(maps);
  return writable;
}

CUresult host_register(void *address, size_t size, unsigned flags) {
  struct context *c;
  const uintptr_t start = (uintptr_t)address;
  CUresult r = current_context(&c);
  if (r) return r;
  if (!address || !size || size > UINTPTR_MAX - start || flags & ~(unsigned)CU_MEMHOSTREGISTER_MASK)
    return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_MEMHOSTREGISTER_IOMEMORY) return CUDA_ERROR_NOT_SUPPORTED;
  const bool read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY;
  if (read_only && !sim.options.read_only_register) return CUDA_ERROR_NOT_SUPPORTED;
  if (block_overlaps(start, size)) {
    const struct block *b = block_at(start);
    return block_on_device(b) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  if (arena_owns(start) || !is_mapped(start, size) || (!read_only && !is_writable(start, size)))
    return CUDA_ERROR_INVALID_VALUE;
  struct block *b = block_new(REGISTERED_MEMORY, c, c->device, size);
  b->address = start;
  b->flags = flags;
  return block_make(b);
}

/* Drivers were seen to wait, and are not documented to: work that is queued, and uses the memory, is the caller's
 * error. */
CUresult host_unregister(void *address) {
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  struct block *b = block_at((uintptr_t)address);
  if (!b) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (b->memory != REGISTERED_MEMORY || b->address != (uintptr_t)address) return CUDA_ERROR_INVALID_VALUE;
  block_remove(b);
  b->dead = true;
  block_await_devices(b);
  block_unref(b);
  return CUDA_SUCCESS;
}

static CUresult find_inside(const void *address, const struct block **out) {
  struct context *c;
  CUresult r = current_context(&c);
  if (r) return r;
  *out = block_at((uintptr_t)address);
  return *out && !block_on_device(*out) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult host_device_pointer(CUdeviceptr *device, void *address, unsigned flags) {
  const struct block *b;
  if (!device || flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = find_inside(address, &b);
  if (!r) *device = (uintptr_t)address;
  return r;
}

CUresult host_flags(unsigned *flags, void *address) {
  const struct block *b;
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = find_inside(address, &b);
  if (r) return r;
  /* All of it is mapped, and with unified addressing all that is allocated is portable. */
  *flags = b->flags | CU_MEMHOSTALLOC_DEVICEMAP | (b->memory == HOST_MEMORY ? CU_MEMHOSTALLOC_PORTABLE : 0);
  return CUDA_SUCCESS;
}
