/* Managed memory. */
#define GROUP "managed memory"
#include "rules.h"

static unsigned char* host(CUdeviceptr m) { return (unsigned char*)(uintptr_t)m; }

RULE(managed_memory_belongs_to_host_and_device, MANUAL, "Host and device write managed memory at one address.",
     .needs = MANAGED) {
  CUdeviceptr m = new_managed(10000);
  memset(host(m), 1, 10000);
  OK(cuMemsetD8_v2(m + 100, 2, 100));
  OK(cuCtxSynchronize());
  CHECK(host(m)[99] == 1 && all_bytes(host(m) + 100, 2, 100) && host(m)[200] == 1);
}

RULE(managed_allocations_are_checked, MANUAL,
     "cuMemAllocManaged of no bytes, or with flags of no kind, is INVALID_VALUE.", .needs = MANAGED) {
  CUdeviceptr m;
  IS(cuMemAllocManaged(&m, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAllocManaged(&m, 64, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAllocManaged(&m, 64, 0x40), CUDA_ERROR_INVALID_VALUE);
}

RULE(managed_memory_may_be_prefetched, MANUAL,
     "cuMemPrefetchAsync moves managed memory to a device and back to the host.", .needs = MANAGED | CONCURRENT) {
  CUdeviceptr m = new_managed(1 << 20);
  memset(host(m), 7, 1 << 20);
  IS(cuMemPrefetchAsync(m, 1 << 20, 0, a), CUDA_SUCCESS);
  IS(cuMemPrefetchAsync(m, 1 << 20, CU_DEVICE_CPU, a), CUDA_SUCCESS);
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(host(m), 7, 1 << 20));
}

RULE(prefetching_does_not_wait, MANUAL, "cuMemPrefetchAsync returns while work of the stream is pending.",
     .needs = MANAGED | CONCURRENT) {
  CUdeviceptr m = new_managed(1 << 20);
  close_gate(a);
  DOES_NOT_WAIT(cuMemPrefetchAsync(m, 1 << 20, 0, a));
  STAYS_PENDING(cuStreamQuery(a));
}

RULE(managed_memory_may_be_advised_on, MANUAL, "cuMemAdvise takes a preferred location of managed memory.",
     .needs = MANAGED | CONCURRENT) {
  CUdeviceptr m = new_managed(1 << 20);
  IS(cuMemAdvise(m, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0), CUDA_SUCCESS);
  IS(cuMemAdvise(m, 1 << 20, CU_MEM_ADVISE_SET_READ_MOSTLY, 0), CUDA_SUCCESS);
  IS(cuMemAdvise(m, 1 << 20, CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0), CUDA_SUCCESS);
}

RULE(device_memory_is_not_prefetched, MANUAL, "cuMemPrefetchAsync of device memory is INVALID_VALUE.",
     .needs = MANAGED | CONCURRENT) {
  CUdeviceptr m = new_memory(4096);
  IS(cuMemPrefetchAsync(m, 4096, 0, a), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_device_that_is_not_there_gets_no_prefetch, MANUAL, "cuMemPrefetchAsync to an unknown device is INVALID_DEVICE.",
     .needs = MANAGED | CONCURRENT) {
  CUdeviceptr m = new_managed(4096);
  IS(cuMemPrefetchAsync(m, 4096, 77, a), CUDA_ERROR_INVALID_DEVICE);
}

RULE(freeing_managed_memory_waits_for_queued_work, READING, "cuMemFree of managed memory waits for work of the device.",
     .needs = MANAGED) {
  CUdeviceptr m = new_managed(4096);
  close_gate(a);
  WAITS(cuMemFree_v2(m));
}

RULE(the_host_waits_for_fills_of_managed_memory, READING,
     "cuMemsetD8 of managed memory returns when the bytes are written.", .needs = MANAGED | CONCURRENT) {
  CUdeviceptr m = new_managed(16 << 20);
  OK(cuMemsetD8_v2(m, 7, 16 << 20));
  CHECK(all_bytes(host(m) + (16 << 20) - 4096, 7, 4096));
}

RULE(freed_managed_memory_is_not_the_host_s, READING, "The host cannot read managed memory that was freed.",
     .needs = MANAGED, .alone = true) {
  CUdeviceptr m = new_managed(64 << 20);
  CHECK(host_writes(host(m)));
  OK(cuMemFree_v2(m));
  CHECK(!host_reads(host(m)));
}

RULE(managed_memory_is_not_freed_as_host_memory, READING, "cuMemFreeHost of managed memory is INVALID_VALUE.",
     .needs = MANAGED, .alone = true) {
  IS(cuMemFreeHost(host(new_managed(4096))), CUDA_ERROR_INVALID_VALUE);
}

RULE(without_managed_memory_there_is_none, MANUAL,
     "cuMemAllocManaged is NOT_SUPPORTED where the attribute MANAGED_MEMORY is 0.", .alone = true,
     .options = "managed=0") {
  CUdeviceptr m;
  if (attribute(ATTRIBUTE_MANAGED_MEMORY, 0)) skip("the device has managed memory");
  IS(cuMemAllocManaged(&m, 64, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_NOT_SUPPORTED);
}
