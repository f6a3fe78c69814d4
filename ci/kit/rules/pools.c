/* Stream-ordered allocation. */
#define GROUP "pools"
#include "rules.h"

static uint64_t of(CUmemoryPool pool, CUmemPool_attribute name) {
  uint64_t value = 12345;
  OK(cuMemPoolGetAttribute(pool, name, &value));
  return value;
}

static CUmemoryPool pool_of_device(void) {
  return new_pool((CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ALLOCATION_TYPE_PINNED);
}

RULE(
    pool_memory_is_usable_in_stream_order, MANUAL,
    "cuMemAllocAsync returns an address at once, which later work of the stream may use, and cuMemFreeAsync frees after it.",
    .needs = POOLS) {
  unsigned char* p = new_pinned(1000);
  CUdeviceptr m = 0;
  close_gate(a);
  DOES_NOT_WAIT(cuMemAllocAsync(&m, 1000, a));
  CHECK(m != 0);
  SAME(m % 256, 0);
  OK(cuMemsetD8Async(m, 7, 1000, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, 1000, a));
  DOES_NOT_WAIT(cuMemFreeAsync(m, a));
  STAYS_PENDING(cuStreamQuery(a));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(p, 7, 1000));
}

RULE(no_pool_memory_of_size_zero, READING, "cuMemAllocAsync of no bytes is INVALID_VALUE.", .needs = POOLS,
     .driver = "succeed") {
  CUdeviceptr m;
  IS(cuMemAllocAsync(&m, 0, a), CUDA_ERROR_INVALID_VALUE);
}

RULE(allocation_in_a_stream_needs_no_current_context, READING,
     "cuMemAllocAsync, cuMemAllocFromPoolAsync and cuMemFreeAsync in a stream that was made need no current context.",
     .needs = POOLS, .alone = true) {
  CUcontext context = use(0);
  CUmemoryPool pool = pool_of_device();
  CUdeviceptr m = 0, from_pool = 0;
  OK(cuCtxSetCurrent(NULL));
  IS(cuMemAllocAsync(&m, 1000, a), CUDA_SUCCESS);
  IS(cuMemAllocFromPoolAsync(&from_pool, 1000, pool, a), CUDA_SUCCESS);
  IS(cuMemFreeAsync(from_pool, a), CUDA_SUCCESS);
  IS(cuMemFreeAsync(m, a), CUDA_SUCCESS);
  /* A default stream is that of the context. */
  IS(cuMemAllocAsync(&m, 1000, NULL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemAllocFromPoolAsync(&m, 1000, pool, NULL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemAllocAsync(&m, 1000, a), CUDA_SUCCESS);
  IS(cuMemFreeAsync(m, NULL), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuMemFreeAsync(m, a));
  OK(cuCtxSetCurrent(context));
  OK(cuStreamSynchronize(a));
}

RULE(the_host_cannot_touch_pool_memory, READING, "Memory of a device's pool cannot be read by the host.",
     .needs = POOLS, .alone = true) {
  CUdeviceptr m = allocate(4096, NULL);
  OK(cuStreamSynchronize(NULL));
  CHECK(!host_reads((void*)(uintptr_t)m));
}

RULE(pool_memory_is_used_on_another_stream_after_an_event, MANUAL,
     "Memory of a pool may be used in another stream that waits for the allocation, and be freed after that stream.",
     .needs = POOLS) {
  for (int i = 0; i < 20; i++) {
    CUdeviceptr m = allocate(1000, a);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuMemsetD8Async(m, 7, 1000, b));
    OK(cuEventRecord(e, b));
    OK(cuStreamWaitEvent(a, e, 0));
    IS(cuMemFreeAsync(m, a), CUDA_SUCCESS);
  }
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

RULE(pool_memory_may_be_freed_in_another_stream, MANUAL,
     "cuMemFreeAsync takes any stream, not only that of the allocation.", .needs = POOLS) {
  CUdeviceptr m = allocate(1000, a);
  OK(cuStreamSynchronize(a));
  IS(cuMemFreeAsync(m, b), CUDA_SUCCESS);
}

RULE(pool_memory_is_freed_once, READING, "The second cuMemFreeAsync of an address is INVALID_VALUE, pending or done.",
     .needs = POOLS, .alone = true) {
  CUdeviceptr m = allocate(1000, a);
  OK(cuMemFreeAsync(m, a));
  IS(cuMemFreeAsync(m, a), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamSynchronize(a));
  IS(cuMemFreeAsync(m, a), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFree_v2(m), CUDA_ERROR_INVALID_VALUE);
}

RULE(only_the_start_of_pool_memory_is_freed, READING, "cuMemFreeAsync of an address inside is INVALID_VALUE.",
     .needs = POOLS, .alone = true) {
  CUdeviceptr m = allocate(1000, a);
  IS(cuMemFreeAsync(m + 256, a), CUDA_ERROR_INVALID_VALUE);
}

RULE(memory_of_no_pool_is_freed_in_stream_order, READING,
     "cuMemFreeAsync takes memory of cuMemAlloc, and does not wait.", .needs = POOLS, .alone = true) {
  CUdeviceptr m = new_memory(1000);
  close_gate(a);
  DOES_NOT_WAIT(cuMemFreeAsync(m, a));
  open_gate();
  OK(cuStreamSynchronize(a));
}

RULE(pool_memory_may_be_freed_without_a_stream, MANUAL, "cuMemFree takes memory of a pool, once it is there.",
     .needs = POOLS) {
  CUdeviceptr m = allocate(1000, NULL);
  OK(cuStreamSynchronize(NULL));
  IS(cuMemFree_v2(m), CUDA_SUCCESS);
}

RULE(freeing_pool_memory_without_a_stream_does_not_wait, MANUAL, "cuMemFree of memory of a pool waits for nothing.",
     .needs = POOLS) {
  CUdeviceptr m = allocate(1000, a);
  OK(cuStreamSynchronize(a));
  close_gate(b);
  DOES_NOT_WAIT(cuMemFree_v2(m));
}

RULE(a_destroyed_stream_still_frees, READING, "A pending cuMemFreeAsync is done after its stream was destroyed.",
     .needs = POOLS) {
  CUmemoryPool pool = pool_of_device();
  CUdeviceptr m;
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, a));
  close_gate(a);
  OK(cuMemFreeAsync(m, a));
  DOES_NOT_WAIT(cuStreamDestroy_v2(a));
  open_gate();
  OK(cuCtxSynchronize());
  SAME(of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
}

/* Whether an allocation in one stream waits for a pending free in another. */
static void check_reuse(int allow_dependencies) {
  const size_t size = 64 << 20;
  CUmemoryPool pool = pool_of_device();
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m, n;
  uint64_t keep = UINT64_MAX;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &allow_dependencies));
  OK(cuMemAllocFromPoolAsync(&m, size, pool, a));
  OK(cuStreamSynchronize(a));
  close_gate(a);
  OK(cuMemFreeAsync(m, a));
  DOES_NOT_WAIT(cuMemAllocFromPoolAsync(&n, size, pool, b));
  OK(cuMemsetD8Async(n, 1, 64, b));
  DOES_NOT_WAIT(cuStreamSynchronize(b));
  open_gate();
  OK(cuStreamSynchronize(a));
  OK(cuMemFreeAsync(n, b));
  OK(cuStreamSynchronize(b));
  OK(cuMemPoolDestroy(pool));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

RULE(
    an_allocation_does_not_wait_for_a_pending_free_if_told_so, MANUAL,
    "Without REUSE_ALLOW_INTERNAL_DEPENDENCIES, an allocation in one stream does not wait for a pending free in another.",
    .needs = POOLS) {
  check_reuse(0);
}
RULE(an_allocation_does_not_wait_for_a_pending_free_by_default, READING,
     "With the attributes of a new pool, an allocation in one stream does not wait for a pending free in another.",
     .needs = POOLS) {
  check_reuse(1);
}

RULE(more_pool_memory_than_there_is_is_refused, MANUAL, "cuMemAllocAsync of more than the device has is OUT_OF_MEMORY.",
     .needs = POOLS) {
  size_t available, total;
  CUdeviceptr m;
  OK(cuMemGetInfo_v2(&available, &total));
  IS(cuMemAllocAsync(&m, total + ((size_t)1 << 30), a), CUDA_ERROR_OUT_OF_MEMORY);
  IS(cuStreamSynchronize(a), CUDA_SUCCESS);
  m = allocate(64, a);
  OK(cuMemFreeAsync(m, a));
}

RULE(the_default_pool_is_the_current_pool_at_first, MANUAL,
     "cuDeviceGetMemPool answers with the default pool at first.", .needs = POOLS) {
  CUmemoryPool standard = NULL, current = NULL;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  OK(cuDeviceGetMemPool(&current, 0));
  CHECK(standard != NULL);
  CHECK(standard == current);
  IS(cuDeviceGetDefaultMemPool(&standard, 77), CUDA_ERROR_INVALID_DEVICE);
}

RULE(the_default_pool_cannot_be_destroyed, MANUAL, "cuMemPoolDestroy of the default pool is an error.", .needs = POOLS,
     .alone = true) {
  CUmemoryPool standard = NULL;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  REFUSED(cuMemPoolDestroy(standard));
}

RULE(allocations_come_from_the_current_pool, MANUAL,
     "cuMemAllocAsync allocates from the current pool of the device; a pool that is destroyed is no longer current.",
     .needs = POOLS) {
  CUmemoryPool pool = pool_of_device(), current = NULL, its = NULL, standard = NULL;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  OK(cuDeviceSetMemPool(0, pool));
  OK(cuDeviceGetMemPool(&current, 0));
  CHECK(current == pool);
  CUdeviceptr m = allocate(100, a), n;
  OK(cuMemAllocFromPoolAsync(&n, 100, standard, a));
  OK(cuStreamSynchronize(a));
  OK(cuPointerGetAttribute(&its, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, m));
  CHECK(its == pool);
  OK(cuPointerGetAttribute(&its, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, n));
  CHECK(its == standard);
  OK(cuMemFreeAsync(m, a));
  OK(cuMemFreeAsync(n, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemPoolDestroy(pool));
  OK(cuDeviceGetMemPool(&current, 0));
  CHECK(current == standard);
  OK(cuStreamDestroy_v2(a));
}

RULE(a_pool_outlives_its_destruction_until_it_is_empty, MANUAL,
     "Memory of a pool stays usable after cuMemPoolDestroy, until it is freed.", .needs = POOLS) {
  CUmemoryPool pool = pool_of_device();
  CUdeviceptr m;
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, a));
  OK(cuMemPoolDestroy(pool));
  OK(cuMemsetD8Async(m, 3, 1000, a));
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 3, 1000));
  IS(cuMemFreeAsync(m, a), CUDA_SUCCESS);
}

RULE(destroying_a_pool_does_not_wait, READING, "cuMemPoolDestroy returns while a free to the pool is pending.",
     .needs = POOLS) {
  CUmemoryPool pool = pool_of_device();
  CUdeviceptr m;
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, a));
  close_gate(a);
  OK(cuMemFreeAsync(m, a));
  DOES_NOT_WAIT(cuMemPoolDestroy(pool));
}

RULE(a_pool_counts_used_memory, MANUAL,
     "USED_MEM_CURRENT and USED_MEM_HIGH of a pool count allocations; HIGH can be reset.", .needs = POOLS) {
  CUmemoryPool pool = pool_of_device();
  CUdeviceptr m;
  uint64_t zero = 0;
  SAME(of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
  SAME(of(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, a));
  OK(cuStreamSynchronize(a));
  CHECK(of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 1000);
  CHECK(of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 1000);
  OK(cuMemFreeAsync(m, a));
  OK(cuStreamSynchronize(a));
  SAME(of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
  CHECK(of(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 1000);
  IS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero), CUDA_SUCCESS);
  SAME(of(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
}

RULE(a_pool_keeps_memory_up_to_its_threshold, MANUAL,
     "A pool keeps freed memory up to RELEASE_THRESHOLD, and cuMemPoolTrimTo gives it back.", .needs = POOLS) {
  CUmemoryPool pool = pool_of_device();
  CUdeviceptr m;
  uint64_t keep = UINT64_MAX;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CHECK(of(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == UINT64_MAX);
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, a));
  OK(cuMemFreeAsync(m, a));
  OK(cuStreamSynchronize(a));
  CHECK(of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 1000);
  OK(cuMemPoolTrimTo(pool, 0));
  SAME(of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
}

RULE(a_pool_of_threshold_zero_gives_back_when_synchronized, MANUAL,
     "A pool of RELEASE_THRESHOLD 0 gives freed memory back when a stream is synchronized.", .needs = POOLS) {
  CUmemoryPool pool = pool_of_device();
  CUdeviceptr m;
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, a));
  OK(cuMemFreeAsync(m, a));
  OK(cuStreamSynchronize(a));
  SAME(of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
}

RULE(null_is_no_pool, READING, "Calls with a null pool are INVALID_VALUE.", .needs = POOLS, .alone = true) {
  CUdeviceptr m;
  uint64_t value;
  IS(cuMemAllocFromPoolAsync(&m, 64, NULL, a), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemPoolDestroy(NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_destroyed_pool_is_refused, READING, "Calls with a destroyed pool are INVALID_VALUE.", .needs = POOLS,
     .alone = true) {
  CUmemoryPool pool = pool_of_device();
  CUdeviceptr m;
  OK(cuMemPoolDestroy(pool));
  IS(cuMemAllocFromPoolAsync(&m, 64, pool, a), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
}

RULE(pool_properties_are_checked, MANUAL, "cuMemPoolCreate without a type or for an unknown device is an error.",
     .needs = POOLS, .alone = true) {
  CUmemoryPool pool = NULL;
  CUmemPoolProps p = {.allocType = 0, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_INVALID_VALUE);
  p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.id = 77;
  REFUSED(cuMemPoolCreate(&pool, &p));
  p.location.id = 0;
  IS(cuMemPoolCreate(NULL, &p), CUDA_ERROR_INVALID_VALUE);
}

RULE(without_pools_there_is_no_memory_of_them, MANUAL,
     "cuMemAllocAsync and cuDeviceGetDefaultMemPool are NOT_SUPPORTED where MEMORY_POOLS_SUPPORTED is 0.",
     .alone = true, .options = "pools=0") {
  CUdeviceptr m;
  CUmemoryPool pool;
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  if (attribute(ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0)) skip("the device has pools");
  IS(cuMemAllocAsync(&m, 64, NULL), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_NOT_SUPPORTED);
}
