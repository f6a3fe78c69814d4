/* The functions of CUDA 13. */
#define GROUP "CUDA 13"
#include "rules.h"

enum { PINNED = CU_MEM_ALLOCATION_TYPE_PINNED, MANAGED_TYPE = CU_MEM_ALLOCATION_TYPE_MANAGED };

static CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_NONE, 0}, host_place = {CU_MEM_LOCATION_TYPE_HOST, 0},
                     node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, device_0 = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                     device_1 = {CU_MEM_LOCATION_TYPE_DEVICE, 1};

static void needs_host_pools(void) {
  needs_13();
  if (!attribute(ATTRIBUTE_HOST_POOLS_SUPPORTED, 0) || !attribute(ATTRIBUTE_HOST_NUMA_POOLS_SUPPORTED, 0))
    skip("needs pools of the host");
}

RULE(the_device_of_any_context_can_be_asked_for, MANUAL,
     "cuCtxGetDevice_v2 answers for a context that is not current, and for NULL for the current one.", .needs = TWO) {
  CUdevice device = -1;
  needs_13();
  CUcontext first = use(0);
  use(1);
  OK(cuCtxGetDevice_v2(&device, first));
  SAME(device, 0);
  OK(cuCtxGetDevice_v2(&device, NULL));
  SAME(device, 1);
  IS(cuCtxGetDevice_v2(NULL, first), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxSetCurrent(NULL));
  IS(cuCtxGetDevice_v2(&device, NULL), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(any_context_can_be_waited_for, MANUAL,
     "cuCtxSynchronize_v2 waits for a context that is not current, and for no other.", .needs = TWO) {
  needs_13();
  CUcontext first = use(0);
  CUstream s = new_stream();
  close_gate(s);
  use(1);
  DOES_NOT_WAIT(cuCtxSynchronize_v2(NULL));
  WAITS(cuCtxSynchronize_v2(first));
}

RULE(the_version_asked_for_selects_the_signature, MANUAL,
     "cuGetProcAddress for CUDA 12 finds the signatures of CUDA 12 where CUDA 13 changed them.") {
  CUdriverProcAddressQueryResult status;
  CUresult (*get)(CUdevice*);
  CUdevice device = -1;
  needs_13();
  OK(cuGetProcAddress_v2("cuCtxGetDevice", (void**)&get, 12090, 0, &status));
  SAME(status, CU_GET_PROC_ADDRESS_SUCCESS);
  IS(get(&device), CUDA_SUCCESS);
  SAME(device, 0);
}

RULE(the_default_pool_of_a_place_is_that_of_the_device, MANUAL,
     "cuMemGetDefaultMemPool of a device's place is the pool of cuDeviceGetDefaultMemPool.", .needs = POOLS) {
  CUmemoryPool pool = NULL, same = NULL;
  needs_13();
  OK(cuMemGetDefaultMemPool(&pool, &device_0, CU_MEM_ALLOCATION_TYPE_PINNED));
  OK(cuDeviceGetDefaultMemPool(&same, 0));
  CHECK(pool == same);
  OK(cuMemGetMemPool(&pool, &device_0, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK(pool == same);
}

RULE(a_place_can_be_given_another_pool, MANUAL,
     "cuMemSetMemPool makes a pool the current one of its place, until it is destroyed.", .needs = POOLS) {
  CUmemoryPool pool = NULL, now = NULL;
  needs_13();
  pool = new_pool(device_0, CU_MEM_ALLOCATION_TYPE_PINNED);
  OK(cuMemSetMemPool(&device_0, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
  OK(cuDeviceGetMemPool(&now, 0));
  CHECK(now == pool);
  OK(cuMemPoolDestroy(pool));
  OK(cuMemGetMemPool(&now, &device_0, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK(now != pool);
}

RULE(every_place_has_a_default_pool, MANUAL,
     "Devices, the host and its nodes have different default pools, of page-locked and of managed memory.",
     .needs = TWO | POOLS | MANAGED, .alone = true) {
  struct {
    CUmemLocation where;
    int type;
  } places[] = {{device_0, PINNED},   {device_1, PINNED},       {host_place, PINNED},
                {node, PINNED},       {nowhere, MANAGED_TYPE},  {host_place, MANAGED_TYPE},
                {node, MANAGED_TYPE}, {device_0, MANAGED_TYPE}, {device_1, MANAGED_TYPE}};
  enum { COUNT = sizeof places / sizeof *places };
  CUmemoryPool pools[COUNT] = {NULL}, again = NULL;
  needs_host_pools();
  for (int i = 0; i < COUNT; i++) {
    OK(cuMemGetDefaultMemPool(&pools[i], &places[i].where, places[i].type));
    OK(cuMemGetMemPool(&again, &places[i].where, places[i].type));
    CHECK(again == pools[i]);
    for (int j = 0; j < i; j++) CHECK(pools[i] != pools[j]);
    IS(cuMemPoolDestroy(pools[i]), CUDA_ERROR_INVALID_VALUE);
  }
  OK(cuDeviceGetDefaultMemPool(&again, 1));
  CHECK(again == pools[1]);
}

RULE(places_that_are_none_have_no_pool, SEEN,
     "cuMemGetMemPool of a place that cannot have such memory is INVALID_VALUE; of the current node, NOT_SUPPORTED.",
     .needs = POOLS | MANAGED, .alone = true) {
  CUmemLocation other_node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 77}, unknown = {CU_MEM_LOCATION_TYPE_DEVICE, 77},
                this_node = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0};
  CUmemoryPool pool;
  needs_host_pools();
  IS(cuMemGetMemPool(&pool, &nowhere, PINNED), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, &this_node, PINNED), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemGetMemPool(&pool, &other_node, PINNED), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, &other_node, MANAGED_TYPE), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, &unknown, MANAGED_TYPE), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, &unknown, PINNED), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, &host_place, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(NULL, &host_place, PINNED), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, NULL, PINNED), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_pool_is_for_its_own_place, MANUAL,
     "cuMemSetMemPool of a pool for another place or type is INVALID_VALUE; the default pool stays what it was.",
     .needs = POOLS | MANAGED, .alone = true) {
  CUmemoryPool first = NULL, pool = NULL, now = NULL;
  needs_host_pools();
  OK(cuMemGetMemPool(&first, &host_place, PINNED));
  pool = new_pool(host_place, PINNED);
  IS(cuMemSetMemPool(&node, PINNED, pool), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemSetMemPool(&host_place, MANAGED_TYPE, pool), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemSetMemPool(&device_0, PINNED, pool), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemSetMemPool(&host_place, PINNED, pool));
  OK(cuMemGetMemPool(&now, &host_place, PINNED));
  CHECK(now == pool);
  OK(cuMemGetDefaultMemPool(&now, &host_place, PINNED));
  CHECK(now == first);
  OK(cuMemPoolDestroy(pool));
  OK(cuMemGetMemPool(&now, &host_place, PINNED));
  CHECK(now == first);
}

static void is_no_pool(CUmemPoolProps p, CUresult want) {
  CUmemoryPool pool;
  IS(cuMemPoolCreate(&pool, &p), want);
}

RULE(pools_of_host_and_managed_memory_have_rules_of_their_own, READING,
     "A pool of managed memory has no limit, usage or handles, one of the host no handles, and one of pages a place.",
     .needs = POOLS | MANAGED, .alone = true) {
  needs_host_pools();
  is_no_pool((CUmemPoolProps){.allocType = MANAGED_TYPE, .maxSize = 1}, CUDA_ERROR_INVALID_VALUE);
  is_no_pool((CUmemPoolProps){.allocType = MANAGED_TYPE, .usage = 1}, CUDA_ERROR_INVALID_VALUE);
  is_no_pool((CUmemPoolProps){.allocType = MANAGED_TYPE, .handleTypes = 1}, CUDA_ERROR_INVALID_VALUE);
  is_no_pool((CUmemPoolProps){.allocType = PINNED, .location = host_place, .handleTypes = 1}, CUDA_ERROR_INVALID_VALUE);
  is_no_pool((CUmemPoolProps){.allocType = PINNED}, CUDA_ERROR_INVALID_VALUE);
}

RULE(managed_pools_need_managed_memory, MANUAL, "Without managed memory, pools of it are NOT_SUPPORTED.",
     .needs = POOLS, .options = "managed=0") {
  CUmemoryPool pool;
  needs_host_pools();
  if (attribute(ATTRIBUTE_MANAGED_MEMORY, 0)) skip("the device has managed memory");
  is_no_pool((CUmemPoolProps){.allocType = MANAGED_TYPE}, CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemGetMemPool(&pool, &nowhere, MANAGED_TYPE), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemGetMemPool(&pool, &host_place, PINNED), CUDA_SUCCESS);
}

RULE(without_pools_no_place_has_one, MANUAL, "Without pools, no place has one, and HOST_POOLS_SUPPORTED is 0.",
     .alone = true, .options = "pools=0") {
  CUmemoryPool pool;
  needs_13();
  if (attribute(ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0)) skip("the device has pools");
  is_no_pool((CUmemPoolProps){.allocType = PINNED, .location = host_place}, CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemGetMemPool(&pool, &host_place, PINNED), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemGetMemPool(&pool, &device_0, PINNED), CUDA_ERROR_NOT_SUPPORTED);
  SAME(attribute(ATTRIBUTE_HOST_POOLS_SUPPORTED, 0), 0);
}

RULE(memory_of_host_pools_is_page_locked, MANUAL,
     "Memory of a pool of the host has the type HOST, and the host writes it.", .needs = POOLS) {
  CUmemoryPool pool = NULL, its = NULL;
  CUdeviceptr m = 0, d = new_memory(4000);
  int type = 0, managed = 1;
  uint64_t used = 0;
  needs_host_pools();
  pool = new_pool(host_place, CU_MEM_ALLOCATION_TYPE_PINNED);
  OK(cuMemAllocFromPoolAsync(&m, 4000, pool, a));
  OK(cuStreamSynchronize(a));
  CHECK(host_writes((void*)(uintptr_t)m));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, m));
  SAME(type, CU_MEMORYTYPE_HOST);
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, m));
  SAME(managed, 0);
  OK(cuPointerGetAttribute(&its, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, m));
  CHECK(its == pool);
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  CHECK(used >= 4000);
  memset((void*)(uintptr_t)m, 7, 4000);
  OK(cuMemcpyHtoDAsync_v2(d, (void*)(uintptr_t)m, 4000, a));
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(d, 7, 4000));
  OK(cuMemFreeAsync(m, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  SAME(used, 0);
}

RULE(memory_of_host_pools_is_freed_as_that_of_others, READING,
     "cuMemFreeHost of memory of a pool of the host is INVALID_VALUE, cuMemFree frees it.", .needs = POOLS,
     .alone = true) {
  CUdeviceptr m = 0;
  needs_host_pools();
  CUmemoryPool pool = new_pool(host_place, PINNED);
  OK(cuMemAllocFromPoolAsync(&m, 4096, pool, a));
  OK(cuStreamSynchronize(a));
  IS(cuMemFreeHost((void*)(uintptr_t)m), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFree_v2(m), CUDA_SUCCESS);
}

RULE(a_pool_has_no_more_than_its_limit, READING, "Allocation of more than a pool's maxSize is OUT_OF_MEMORY.",
     .needs = POOLS, .alone = true) {
  CUmemoryPool pool = NULL;
  CUmemPoolProps p = {.allocType = PINNED, .location = host_place, .maxSize = 64 << 20};
  CUdeviceptr m = 0;
  needs_host_pools();
  OK(cuMemPoolCreate(&pool, &p));
  IS(cuMemAllocFromPoolAsync(&m, 64 << 20, pool, a), CUDA_SUCCESS);
  IS(cuMemAllocFromPoolAsync(&m, 64 << 20, pool, a), CUDA_ERROR_OUT_OF_MEMORY);
}

RULE(memory_of_managed_pools_is_managed, MANUAL, "Memory of a pool of managed memory is the host's and the device's.",
     .needs = POOLS | MANAGED | CONCURRENT) {
  CUdeviceptr m = 0;
  int managed = 0;
  needs_host_pools();
  CUmemoryPool pool = new_pool(device_0, MANAGED_TYPE);
  OK(cuMemAllocFromPoolAsync(&m, 1000, pool, a));
  OK(cuMemsetD8Async(m, 7, 1000, a));
  IS(cuMemPrefetchAsync(m, 1000, 0, a), CUDA_SUCCESS);
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes((unsigned char*)(uintptr_t)m, 7, 1000));
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, m));
  CHECK(managed);
  OK(cuMemFreeAsync(m, a));
  OK(cuStreamSynchronize(a));
}
