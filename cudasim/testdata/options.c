/* Options of the machine. */
#include "simulator.h"

BARE(without_devices_init_fails, "devices=0") {
  int count;
  IS(cuInit(0), CUDA_ERROR_NO_DEVICE);
  CHECK(cuDeviceGetCount(&count) != CUDA_SUCCESS);
}

BARE(device_total_memory_is_the_option, "memory=16777216") {
  size_t total;
  OK(cuInit(0));
  OK(cuDeviceTotalMem_v2(&total, 0));
  SAME(total, 16777216);
  IS(cuDeviceTotalMem_v2(&total, 7), CUDA_ERROR_INVALID_DEVICE);
}

BARE(modules_are_loaded_eagerly_before_12_2, "version=12010") {
  int mode = 0;
  OK(cuInit(0));
  OK(cuModuleGetLoadingMode(&mode));
  SAME(mode, 1);
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
  OK(cuModuleGetLoadingMode(&mode));
  SAME(mode, 2);
}

static CUcontext retain(void) {
  CUcontext context = NULL;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  return context;
}

BARE(a_primary_context_gets_a_new_handle_by_default, "") {
  CUcontext first = retain();
  OK(cuDevicePrimaryCtxRelease_v2(0));
  CUcontext second = retain();
  CHECK(first != second);
  IS(cuCtxSetCurrent(first), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuDevicePrimaryCtxRelease_v2(0));
}

WITH_OBJECTS(pageable_sources_are_read_late_if_asked, "pageable_async=1") {
  CUdeviceptr m = new_memory(4096);
  static unsigned char p[4096];
  memset(p, 1, sizeof p);
  close_gate(a);
  OK(cuMemcpyHtoDAsync_v2(m, p, sizeof p, a));
  STAYS_PENDING(cuStreamQuery(a));
  memset(p, 2, sizeof p);
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 2, sizeof p));
}

SIMULATED(synchronous_copies_of_pageable_memory_are_done_on_return_even_then, "pageable_async=1,delay=2000") {
  CUdeviceptr m = new_memory(4096);
  static unsigned char p[4096], q[4096];
  memset(p, 1, sizeof p);
  OK(cuMemcpyHtoD_v2(m, p, sizeof p));
  memset(p, 2, sizeof p);
  OK(cuMemcpyDtoH_v2(q, m, sizeof q));
  CHECK(all_bytes(q, 1, sizeof q));
}

WITH_OBJECTS(pageable_destinations_are_written_late_if_asked, "pageable_async=1") {
  CUdeviceptr m = new_memory(4096);
  static unsigned char p[4096];
  OK(cuMemsetD8Async(m, 1, sizeof p, a));
  cudasim_pause();
  OK(cuMemcpyDtoHAsync_v2(p, m, sizeof p, a));
  STAYS(all_bytes(p, 0, sizeof p));
  STAYS_PENDING(cuStreamQuery(a));
  cudasim_resume();
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(p, 1, sizeof p));
}

SIMULATED(without_poison_fresh_memory_is_zero, "poison=0") {
  CUdeviceptr m = new_memory(4096);
  CHECK(is_filled(m, 0, 4096));
}

SIMULATED(device_memory_is_limited, "memory=1048576") {
  size_t free, total, before;
  CUdeviceptr m = 0, rest;
  OK(cuMemGetInfo_v2(&before, &total));
  SAME(total, 1048576);
  SAME(before, total);
  IS(cuMemAlloc_v2(&rest, 1048577), CUDA_ERROR_OUT_OF_MEMORY);
  IS(cuMemAlloc_v2(&rest, (size_t)1 << 62), CUDA_ERROR_OUT_OF_MEMORY);
  IS(cuMemAlloc_v2(&rest, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAlloc_v2(&m, 600000));
  OK(cuMemGetInfo_v2(&free, &total));
  CHECK(free <= before - 600000 && total == 1048576);
  IS(cuMemAlloc_v2(&rest, 500000), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFree_v2(m));
  OK(cuMemGetInfo_v2(&free, &total));
  SAME(free, before);
  OK(cuMemAlloc_v2(&rest, 1048576));
}

SIMULATED(memory_is_limited_per_device, "devices=2,memory=1048576") {
  CUcontext a = use(0);
  CUdeviceptr n, none;
  new_memory(1048576);
  use(1);
  n = new_memory(1048576);
  IS(cuMemAlloc_v2(&none, 1), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFree_v2(n));
  OK(cuCtxSetCurrent(a));
}

SIMULATED(page_locked_memory_is_limited, "host_memory=1048576") {
  void *p, *q;
  IS(cuMemAllocHost_v2(&p, 2097152), CUDA_ERROR_OUT_OF_MEMORY);
  IS(cuMemHostAlloc(&p, 2097152, 0), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAllocHost_v2(&p, 1000000));
  IS(cuMemAllocHost_v2(&q, 1000000), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFreeHost(p));
  OK(cuMemAllocHost_v2(&q, 1000000));
}

SIMULATED(pool_memory_is_limited, "memory=1048576") {
  CUdeviceptr m, n;
  IS(cuMemAllocAsync(&m, 2097152, NULL), CUDA_ERROR_OUT_OF_MEMORY);
  m = allocate(800000, NULL);
  IS(cuMemAllocAsync(&n, 800000, NULL), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFreeAsync(m, NULL));
  OK(cuStreamSynchronize(NULL));
  m = allocate(800000, NULL);
  OK(cuMemFreeAsync(m, NULL));
  OK(cuStreamSynchronize(NULL));
}

SIMULATED(a_pool_gives_way_to_plain_allocations, "memory=1048576") {
  CUmemoryPool pool;
  uint64_t keep = UINT64_MAX;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CUdeviceptr m = allocate(800000, NULL);
  OK(cuMemFreeAsync(m, NULL));
  OK(cuStreamSynchronize(NULL));
  OK(cuMemPoolTrimTo(pool, 0));
  OK(cuMemFree_v2(new_memory(800000)));
}

SIMULATED(devices_share_page_tables_with_the_host_if_asked, "devices=2,coherent=1") {
  static const int attributes[] = {86, ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, ATTRIBUTE_PAGEABLE_HOST_TABLES,
                                   ATTRIBUTE_DIRECT_MANAGED_ACCESS};
  unsigned char bytes[64] = {0};
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    for (int device = 0; device < 2; device++) SAME(attribute(attributes[i], device), !device);
  OK(cuMemsetD8_v2(address(bytes), 1, 64));
  CHECK(all_bytes(bytes, 1, 64));
  IS(cuMemcpyDtoH_v2(bytes, 16, 64), CUDA_ERROR_INVALID_VALUE); /* nothing is mapped there */
  use(1);
  IS(cuMemsetD8_v2(address(bytes), 2, 64), CUDA_ERROR_INVALID_VALUE);
}

SIMULATED(memory_of_such_a_device_is_not_the_host_s, "coherent=1") {
  CUdeviceptr m = new_memory(4096);
  CHECK(!host_reads((void *)(uintptr_t)m) && !host_writes((void *)(uintptr_t)m));
  IS(cuMemcpyHtoD_v2(m, (void *)(uintptr_t)m, 64), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(m));
  IS(cuMemsetD8_v2(m, 1, 64), CUDA_ERROR_INVALID_VALUE);
}
