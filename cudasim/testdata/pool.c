/* Stream-ordered allocation. */
#include "rules.h"

static CUdeviceptr allocate(size_t size, CUstream s) {
  CUdeviceptr m = 0;
  OK(cuMemAllocAsync(&m, size, s));
  CHECK(m != 0);
  return m;
}

static uint64_t attribute(CUmemoryPool pool, int name) {
  uint64_t value = 12345;
  OK(cuMemPoolGetAttribute(pool, name, &value));
  return value;
}

static CUmemoryPool new_pool(void) {
  CUmemoryPool pool = NULL;
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  OK(cuMemPoolCreate(&pool, &p));
  return pool;
}

RULE(pool_memory_is_usable_in_stream_order, "") {
  use(0);
  CUstream s = new_stream();
  unsigned char *p = new_pinned(1000);
  struct gate gate;
  close_gate(&gate, s);
  CUdeviceptr m = allocate(1000, s); /* the address is known at once */
  SAME(m % 256, 0);
  OK(cuMemsetD8Async(m, 7, 1000, s));
  OK(cuMemcpyDtoHAsync_v2(p, m, 1000, s));
  OK(cuMemFreeAsync(m, s));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes(p, 7, 1000));
  OK(cuMemFreeHost(p));
  OK(cuStreamDestroy_v2(s));
}

RULE(stream_ordered_allocation_in_a_stream_needs_no_current_context, "") {
  CUcontext context = use(0);
  CUstream s = new_stream();
  CUmemoryPool pool = new_pool();
  CUdeviceptr m, from_pool;
  OK(cuCtxSetCurrent(NULL));
  m = allocate(1000, s);
  OK(cuMemAllocFromPoolAsync(&from_pool, 1000, pool, s));
  OK(cuMemFreeAsync(from_pool, s));
  OK(cuMemFreeAsync(m, s));
  /* A default stream is that of the current context. */
  IS(cuMemAllocAsync(&m, 1000, NULL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemAllocFromPoolAsync(&m, 1000, pool, NULL), CUDA_ERROR_INVALID_CONTEXT);
  m = allocate(1000, s);
  IS(cuMemFreeAsync(m, NULL), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuMemFreeAsync(m, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemPoolDestroy(pool));
  OK(cuStreamDestroy_v2(s));
  OK(cuCtxSetCurrent(context));
}

RULE(the_host_cannot_touch_pool_memory, "") {
  use(0);
  CUdeviceptr m = allocate(4096, NULL);
  OK(cuStreamSynchronize(NULL));
  CHECK(!host_reads((void *)(uintptr_t)m));
  OK(cuMemFreeAsync(m, NULL));
  OK(cuStreamSynchronize(NULL));
  CHECK(!host_reads((void *)(uintptr_t)m));
}

RULE(pool_memory_is_used_on_another_stream_after_an_event, "schedule=random,delay=200") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUevent e = new_event();
  for (int i = 0; i < 20; i++) {
    CUdeviceptr m = allocate(1000, a);
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuMemsetD8Async(m, 7, 1000, b));
    OK(cuEventRecord(e, b));
    OK(cuStreamWaitEvent(a, e, 0));
    OK(cuMemFreeAsync(m, a));
  }
  OK(cuCtxSynchronize());
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

RULE(using_pool_memory_before_it_is_there_is_a_violation, "", .violates = true) {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  struct gate gate;
  close_gate(&gate, a);
  CUdeviceptr m = allocate(1000, a);
  if (cuMemsetD8Async(m, 7, 1000, b) == CUDA_SUCCESS) OK(cuStreamSynchronize(b));
  open_gate(&gate);
  OK(cuMemFreeAsync(m, a));
  OK(cuStreamSynchronize(a));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

RULE(using_pool_memory_after_its_free_is_a_violation, "", .violates = true) {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = allocate(1000, a);
  struct gate gate;
  OK(cuStreamSynchronize(a));
  close_gate(&gate, a);
  OK(cuMemsetD8Async(m, 7, 1000, a));
  OK(cuMemFreeAsync(m, b)); /* b does not wait for a */
  OK(cuStreamSynchronize(b));
  open_gate(&gate);
  /* As after any fault of the device: an error for good, and for all. */
  IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuStreamQuery(b), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuMemAlloc_v2(&m, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
}

RULE(freeing_pool_memory_out_of_order_is_a_violation_even_if_it_goes_well, "", .violates = true) {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = allocate(1000, a);
  OK(cuStreamSynchronize(a));
  OK(cudasim_event_hold(e));
  OK(cuEventRecord(e, b)); /* so that it does go well */
  cudasim_pause();
  OK(cuMemsetD8Async(m, 7, 1000, a));
  OK(cuMemFreeAsync(m, b));
  cudasim_resume();
  OK(cuStreamSynchronize(a));
  OK(cudasim_event_fire(e));
  OK(cuStreamSynchronize(b));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

RULE(queueing_work_on_freed_pool_memory_is_noticed, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = allocate(1000, s);
  OK(cuMemFreeAsync(m, s));
  OK(cuStreamSynchronize(s));
  CHECK(cuMemsetD8Async(m, 7, 1000, s) != CUDA_SUCCESS || reports("violations", "\""));
  cudasim_reset_counters(); /* forgets violations */
  CHECK(!reports("violations", "\""));
  OK(cuStreamDestroy_v2(s));
}

RULE(pool_memory_is_freed_once, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = allocate(1000, s);
  OK(cuMemFreeAsync(m, s));
  IS(cuMemFreeAsync(m, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFreeAsync(m + 256, s), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamSynchronize(s));
  IS(cuMemFreeAsync(m, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFree_v2(m), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamDestroy_v2(s));
}

RULE(pool_memory_may_be_freed_without_a_stream, "") {
  use(0);
  CUdeviceptr m = allocate(1000, NULL);
  OK(cuStreamSynchronize(NULL));
  OK(cuMemFree_v2(m));
  SAME(reported("device_bytes", 0), 0);
}

RULE(freeing_pool_memory_without_a_stream_does_not_wait, "", .violates = true) {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = allocate(1000, s);
  struct gate gate;
  OK(cuStreamSynchronize(s));
  close_gate(&gate, s);
  OK(cuMemsetD8Async(m, 7, 1000, s));
  OK(cuMemFree_v2(m)); /* returns, though the gate is closed: the caller should have waited */
  CHECK(!gate.open);
  open_gate(&gate);
  IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

RULE(a_fault_stays_on_its_device, "devices=2", .violates = true) {
  CUcontext a = use(0);
  CUstream s = new_stream();
  CUdeviceptr m = allocate(1000, s);
  struct gate gate;
  OK(cuStreamSynchronize(s));
  close_gate(&gate, s);
  OK(cuMemsetD8Async(m, 7, 1000, s));
  OK(cuMemFreeAsync(m, NULL));
  OK(cuStreamSynchronize(NULL));
  open_gate(&gate);
  IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  use(1);
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(new_memory(64)));
  OK(cuCtxSetCurrent(a));
  IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

RULE(a_stream_ordered_free_does_not_wait, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = allocate(1000, s);
  struct gate gate;
  close_gate(&gate, s);
  OK(cuMemFreeAsync(m, s));
  STAYS_PENDING(cuStreamQuery(s));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  SAME(reported("allocations", 0), 0);
  OK(cuStreamDestroy_v2(s));
}

RULE(a_destroyed_stream_still_frees, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = allocate(1000, s);
  struct gate gate;
  close_gate(&gate, s);
  OK(cuMemFreeAsync(m, s));
  OK(cuStreamDestroy_v2(s));
  open_gate(&gate);
  OK(cuCtxSynchronize());
  SAME(reported("allocations", 0), 0);
}

RULE(fresh_pool_memory_is_garbage, "") {
  use(0);
  for (int i = 0; i < 20; i++) {
    CUdeviceptr m = allocate(4096, NULL);
    CHECK(!is_filled(m, 0, 64) && !is_filled(m, 0x77, 64));
    OK(cuMemsetD8Async(m, 0x77, 4096, NULL));
    OK(cuMemFreeAsync(m, NULL));
  }
  OK(cuStreamSynchronize(NULL));
}

RULE(pool_memory_is_limited, "memory=1048576") {
  use(0);
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

RULE(a_pool_gives_way_to_plain_allocations, "memory=1048576") {
  use(0);
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

RULE(the_default_pool_is_the_current_pool_at_first, "") {
  use(0);
  CUmemoryPool standard = NULL, current = NULL;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  OK(cuDeviceGetMemPool(&current, 0));
  CHECK(standard != NULL && standard == current);
  CHECK(cuMemPoolDestroy(standard) != CUDA_SUCCESS);
  IS(cuDeviceGetDefaultMemPool(&standard, 3), CUDA_ERROR_INVALID_DEVICE);
}

RULE(allocations_come_from_the_current_pool, "") {
  use(0);
  CUmemoryPool pool = new_pool(), current = NULL, of = NULL, standard = NULL;
  OK(cuDeviceGetDefaultMemPool(&standard, 0));
  OK(cuDeviceSetMemPool(0, pool));
  OK(cuDeviceGetMemPool(&current, 0));
  CHECK(current == pool);
  CUdeviceptr m = allocate(100, NULL), n;
  OK(cuMemAllocFromPoolAsync(&n, 100, standard, NULL));
  OK(cuStreamSynchronize(NULL));
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, m));
  CHECK(of == pool);
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, n));
  CHECK(of == standard);
  OK(cuMemFreeAsync(m, NULL));
  OK(cuMemFreeAsync(n, NULL));
  OK(cuStreamSynchronize(NULL));
  OK(cuMemPoolDestroy(pool)); /* the default pool is current again */
  OK(cuDeviceGetMemPool(&current, 0));
  CHECK(current == standard);
}

RULE(a_pool_outlives_its_destruction_until_it_is_empty, "") {
  use(0);
  CUmemoryPool pool = new_pool();
  CUdeviceptr m;
  CUstream s = new_stream();
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, s));
  OK(cuMemPoolDestroy(pool));
  OK(cuMemsetD8Async(m, 3, 1000, s));
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 3, 1000));
  OK(cuMemFreeAsync(m, s));
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  IS(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
}

RULE(pools_are_counted, "") {
  use(0);
  CUmemoryPool pool = new_pool();
  SAME(reported("pools", 0), 1);
  OK(cuMemPoolDestroy(pool));
  SAME(reported("pools", 0), 0);
}

RULE(a_pool_says_how_much_is_used, "") {
  use(0);
  CUmemoryPool pool = new_pool();
  CUdeviceptr m;
  uint64_t zero = 0;
  SAME(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
  SAME(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, NULL));
  OK(cuStreamSynchronize(NULL));
  CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) >= 1000);
  CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 1000);
  OK(cuMemFreeAsync(m, NULL));
  OK(cuStreamSynchronize(NULL));
  SAME(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
  CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= 1000);
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  SAME(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
  OK(cuMemPoolDestroy(pool));
}

RULE(a_pool_keeps_what_its_threshold_allows, "") {
  use(0);
  CUmemoryPool pool = new_pool();
  CUdeviceptr m;
  uint64_t keep = UINT64_MAX;
  OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CHECK(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == UINT64_MAX);
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, NULL));
  OK(cuMemFreeAsync(m, NULL));
  OK(cuStreamSynchronize(NULL));
  CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 1000);
  OK(cuMemPoolTrimTo(pool, 0));
  SAME(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
  OK(cuMemPoolDestroy(pool));
}

RULE(a_pool_of_threshold_zero_gives_back_when_synchronized, "") {
  use(0);
  CUmemoryPool pool = new_pool();
  CUdeviceptr m;
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, NULL));
  OK(cuMemFreeAsync(m, NULL));
  OK(cuStreamSynchronize(NULL));
  SAME(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
  OK(cuMemPoolDestroy(pool));
}

RULE(what_is_no_pool_is_refused, "") {
  use(0);
  CUmemoryPool pool = NULL, destroyed = new_pool();
  int garbage[64] = {0};
  CUdeviceptr m;
  uint64_t value;
  OK(cuMemPoolDestroy(destroyed));
  CUmemoryPool wrong[] = {NULL, (CUmemoryPool)(void *)garbage, destroyed};
  for (int i = 0; i < 3; i++) {
    IS(cuMemAllocFromPoolAsync(&m, 64, wrong[i], NULL), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemPoolGetAttribute(wrong[i], CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemPoolDestroy(wrong[i]), CUDA_ERROR_INVALID_VALUE);
  }
  CUmemPoolProps p = {.allocType = 0, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_INVALID_VALUE);
  p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location.id = 5;
  CHECK(cuMemPoolCreate(&pool, &p) != CUDA_SUCCESS);
  IS(cuMemPoolCreate(NULL, &p), CUDA_ERROR_INVALID_VALUE);
}

RULE(pool_access_is_granted_per_device, "devices=2") {
  use(1);
  use(0);
  CUmemoryPool pool = new_pool();
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemLocation own = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, other = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  int flags = -1;
  OK(cuMemPoolGetAccess(&flags, pool, &own));
  SAME(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  OK(cuMemPoolGetAccess(&flags, pool, &other));
  SAME(flags, 0);
  OK(cuMemPoolSetAccess(pool, &access, 1));
  OK(cuMemPoolGetAccess(&flags, pool, &other));
  SAME(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  OK(cuMemPoolDestroy(pool));
}

RULE(pools_can_be_switched_off, "pools=0") {
  use(0);
  CUdeviceptr m;
  CUmemoryPool pool;
  int value = 1;
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
  SAME(value, 0);
  IS(cuMemAllocAsync(&m, 64, NULL), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_ERROR_NOT_SUPPORTED);
}

RULE(hundred_thousand_stream_ordered_allocations_leave_nothing, "") {
  use(0);
  CUstream s = new_stream();
  double start = now();
  for (int i = 0; i < 100000; i++) {
    CUdeviceptr m = allocate((size_t)(i % 7 + 1) * 1000, s);
    OK(cuMemFreeAsync(m, s));
  }
  OK(cuStreamSynchronize(s));
  CHECK(now() - start < 30);
  SAME(reported("allocations", 0), 0);
  OK(cuStreamDestroy_v2(s));
}
