/* The functions of version 13. */
#include "rules.h"

#include <dlfcn.h>

enum {
  CU_MEM_ALLOCATION_TYPE_MANAGED = 2,
  CU_MEM_LOCATION_TYPE_NONE = 0,
  CU_MEM_LOCATION_TYPE_HOST = 2,
  CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
  CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4,
  CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED = 142,
  CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED = 144,
};

static const CUmemLocation nowhere = {CU_MEM_LOCATION_TYPE_NONE, 0};
static const CUmemLocation on_device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
static const CUmemLocation on_device_1 = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
static const CUmemLocation on_host = {CU_MEM_LOCATION_TYPE_HOST, 0};
static const CUmemLocation on_node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};

/* The program is linked to a library of before, so it looks these up. */
#define FIND(name, ...)                         \
  CUresult (*name)(__VA_ARGS__);                \
  *(void **)&name = dlsym(RTLD_DEFAULT, #name); \
  CHECK(name != NULL)
#define FIND_POOLS                                                          \
  FIND(cuMemGetDefaultMemPool, CUmemoryPool *, const CUmemLocation *, int); \
  FIND(cuMemGetMemPool, CUmemoryPool *, const CUmemLocation *, int);        \
  FIND(cuMemSetMemPool, const CUmemLocation *, int, CUmemoryPool)

/* ---- names ---- */

static const char *const names[] = {
    "cuCtxGetDevice_v2",
    "cuCtxSynchronize_v2",
    "cuDeviceGetHostAtomicCapabilities",
    "cuDeviceGetP2PAtomicCapabilities",
    "cuMemDiscardAndPrefetchBatchAsync",
    "cuMemDiscardBatchAsync",
    "cuMemGetDefaultMemPool",
    "cuMemGetMemPool",
    "cuMemPrefetchBatchAsync",
    "cuMemPrefetchBatchAsync_ptsz",
    "cuMemSetMemPool",
    "cuMemcpy3DBatchAsync_v2",
    "cuMemcpyBatchAsync_v2",
    "cuMemcpyBatchAsync_v2_ptsz",
};

static int names_there(void) {
  int there = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) there += dlsym(RTLD_DEFAULT, names[i]) != NULL;
  return there;
}

static void *find(const char *name, int version, int want) {
  void *f = NULL;
  int status = -1;
  OK(cuGetProcAddress_v2(name, &f, version, 0, &status));
  SAME(status, want);
  return f;
}

RULE(names_of_13_are_there_with_version_13, "version=13000") {
  int version;
  OK(cuDriverGetVersion(&version));
  SAME(version, 13000);
  SAME(names_there(), sizeof names / sizeof *names);
  CHECK(find("cuMemGetMemPool", 13000, CU_GET_PROC_ADDRESS_SUCCESS) == dlsym(RTLD_DEFAULT, "cuMemGetMemPool"));
  find("cuMemGetMemPool", 12090, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

RULE(names_of_13_are_nowhere_before, "version=12090") {
  void *f;
  SAME(names_there(), 0);
  find("cuMemGetMemPool", 12090, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  IS(cuGetProcAddress_v2("cuMemGetMemPool", &f, 13000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  CHECK(find("cuMemcpyBatchAsync", 12090, 0) == dlsym(RTLD_DEFAULT, "cuMemcpyBatchAsync"));
}

/* A program of 12 on a driver of 13 gets the functions that it was written for. */
RULE(the_version_asked_for_selects_the_signature, "version=13000") {
  static const struct {
    const char *name, *before, *from_13;
  } changed[] = {
      {"cuCtxGetDevice", "cuCtxGetDevice", "cuCtxGetDevice_v2"},
      {"cuCtxSynchronize", "cuCtxSynchronize", "cuCtxSynchronize_v2"},
      {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2"},
      {"cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync_v2"},
      /* newer signatures of 12 that 13 made those of the plain names */
      {"cuMemAdvise", "cuMemAdvise_v2", "cuMemAdvise_v2"},
      {"cuMemPrefetchAsync", "cuMemPrefetchAsync_v2", "cuMemPrefetchAsync_v2"},
      {"cuEventElapsedTime", "cuEventElapsedTime_v2", "cuEventElapsedTime_v2"},
      {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", "cuStreamGetCaptureInfo_v3"},
      {"cuCtxCreate", "cuCtxCreate_v4", "cuCtxCreate_v4"},
      {"cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDeviceGetUuid_v2"},
      {"cuStreamGetCtx", "cuStreamGetCtx_v2", "cuStreamGetCtx_v2"},
      {"cuMemAlloc", "cuMemAlloc_v2", "cuMemAlloc_v2"},
  };
  for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) {
    CHECK(find(changed[i].name, 12090, 0) == dlsym(RTLD_DEFAULT, changed[i].before));
    CHECK(find(changed[i].name, 13000, 0) == dlsym(RTLD_DEFAULT, changed[i].from_13));
  }
}

RULE(a_library_is_of_version_13_or_of_before, "", .unreported = true) {
  SAME(cudasim_configure("version=13000"), -1);
  SAME(cudasim_configure("version=12090"), 0);
}

/* ---- contexts and streams ---- */

RULE(the_device_of_any_context_can_be_asked_for, "version=13000,devices=2") {
  FIND(cuCtxGetDevice_v2, CUdevice *, CUcontext);
  CUdevice device = -1;
  CUcontext first = use(0);
  use(1);
  OK(cuCtxGetDevice_v2(&device, first));
  SAME(device, 0);
  OK(cuCtxGetDevice_v2(&device, NULL)); /* the current one */
  SAME(device, 1);
  IS(cuCtxGetDevice_v2(&device, (CUcontext)&device), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxGetDevice_v2(NULL, first), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxSetCurrent(NULL));
  IS(cuCtxGetDevice_v2(&device, NULL), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(any_context_can_be_waited_for, "version=13000,devices=2") {
  FIND(cuCtxSynchronize_v2, CUcontext);
  atomic_bool done;
  CUcontext first = use(0);
  CUstream s = new_stream();
  queue_late(&done, s);
  use(1);
  OK(cuCtxSynchronize_v2(NULL)); /* the current one has nothing to do */
  CHECK(!done);
  OK(cuCtxSynchronize_v2(first));
  CHECK(done);
  OK(cuStreamDestroy_v2(s));
}

RULE(streams_know_their_device_and_contexts, "version=12080,devices=2") {
  FIND(cuStreamGetDevice, CUstream, CUdevice *);
  FIND(cuStreamGetCtx_v2, CUstream, CUcontext *, void **);
  CUcontext c = use(1), of = NULL;
  CUdevice device = -1;
  void *green = &device;
  CUstream s = new_stream();
  OK(cuCtxSetCurrent(NULL));
  OK(cuStreamGetDevice(s, &device));
  SAME(device, 1);
  OK(cuStreamGetCtx_v2(s, &of, &green));
  CHECK(of == c && green == NULL);
  IS(cuStreamGetDevice(NULL, &device), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuStreamDestroy_v2(s));
}

/* ---- pools by place ---- */

RULE(every_place_has_a_default_pool, "version=13000,devices=2") {
  FIND_POOLS;
  const struct {
    CUmemLocation where;
    int type;
  } places[] = {
      {on_device, CU_MEM_ALLOCATION_TYPE_PINNED},    {on_device_1, CU_MEM_ALLOCATION_TYPE_PINNED},
      {on_host, CU_MEM_ALLOCATION_TYPE_PINNED},      {on_node, CU_MEM_ALLOCATION_TYPE_PINNED},
      {nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED},     {on_host, CU_MEM_ALLOCATION_TYPE_MANAGED},
      {on_node, CU_MEM_ALLOCATION_TYPE_MANAGED},     {on_device, CU_MEM_ALLOCATION_TYPE_MANAGED},
      {on_device_1, CU_MEM_ALLOCATION_TYPE_MANAGED},
  };
  enum { COUNT = sizeof places / sizeof *places };
  CUmemoryPool pools[COUNT], again;
  use(0);
  for (int i = 0; i < COUNT; i++) {
    OK(cuMemGetDefaultMemPool(&pools[i], &places[i].where, places[i].type));
    OK(cuMemGetMemPool(&again, &places[i].where, places[i].type));
    CHECK(again == pools[i]);
    for (int j = 0; j < i; j++) CHECK(pools[i] != pools[j]);
    IS(cuMemPoolDestroy(pools[i]), CUDA_ERROR_INVALID_VALUE);
  }
  OK(cuDeviceGetDefaultMemPool(&again, 1));
  CHECK(again == pools[1]);
  SAME(reported("pools", 0), 0); /* they are the driver's */
}

RULE(places_that_are_none_have_no_pool, "version=13000") {
  FIND_POOLS;
  const CUmemLocation other_node = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 1};
  const CUmemLocation this_node = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0};
  CUmemoryPool pool;
  use(0);
  IS(cuMemGetMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, &this_node, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, &other_node, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, &other_node, CU_MEM_ALLOCATION_TYPE_MANAGED), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, &on_device_1, CU_MEM_ALLOCATION_TYPE_MANAGED), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, &on_device_1, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_INVALID_DEVICE);
  IS(cuMemGetMemPool(&pool, &on_host, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(NULL, &on_host, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemGetMemPool(&pool, NULL, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_INVALID_VALUE);
}

static CUmemoryPool new_pool(CUmemLocation where, int type, size_t limit) {
  CUmemoryPool pool = NULL;
  CUmemPoolProps p = {.allocType = type, .location = where, .maxSize = limit};
  OK(cuMemPoolCreate(&pool, &p));
  return pool;
}

RULE(leaked_pools_of_the_host_are_reported, "version=13000", .leaks = "cuMemPoolCreate: ") {
  use(0);
  new_pool(on_host, CU_MEM_ALLOCATION_TYPE_PINNED, 0);
}

RULE(a_place_can_be_given_another_pool, "version=13000") {
  FIND_POOLS;
  CUmemoryPool first, other, now;
  use(0);
  OK(cuMemGetMemPool(&first, &on_host, CU_MEM_ALLOCATION_TYPE_PINNED));
  other = new_pool(on_host, CU_MEM_ALLOCATION_TYPE_PINNED, 0);
  SAME(reported("pools", 0), 1);
  IS(cuMemSetMemPool(&on_node, CU_MEM_ALLOCATION_TYPE_PINNED, other), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemSetMemPool(&on_host, CU_MEM_ALLOCATION_TYPE_MANAGED, other), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemSetMemPool(&on_device, CU_MEM_ALLOCATION_TYPE_PINNED, other), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemSetMemPool(&on_host, CU_MEM_ALLOCATION_TYPE_PINNED, other));
  OK(cuMemGetMemPool(&now, &on_host, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK(now == other);
  OK(cuMemGetDefaultMemPool(&now, &on_host, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK(now == first);
  OK(cuMemPoolDestroy(other)); /* then it is the default pool again */
  OK(cuMemGetMemPool(&now, &on_host, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK(now == first);
}

RULE(the_pool_of_a_device_is_that_of_its_place, "version=13000") {
  FIND_POOLS;
  CUmemoryPool pool, now;
  use(0);
  pool = new_pool(on_device, CU_MEM_ALLOCATION_TYPE_PINNED, 0);
  OK(cuMemSetMemPool(&on_device, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
  OK(cuDeviceGetMemPool(&now, 0));
  CHECK(now == pool);
  OK(cuMemPoolDestroy(pool));
  OK(cuMemGetMemPool(&now, &on_device, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK(now != pool);
}

/* The valid properties of such pools. */
RULE(pools_of_host_and_managed_memory_have_rules_of_their_own, "version=13000") {
  CUmemoryPool pool;
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = nowhere, .maxSize = 1};
  use(0);
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_INVALID_VALUE);
  p = (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = nowhere, .usage = 1};
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_INVALID_VALUE);
  p = (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = nowhere, .handleTypes = 1};
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_INVALID_VALUE);
  p = (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = on_host, .handleTypes = 1};
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_INVALID_VALUE);
  p.location = on_node; /* could be shared, where there is sharing */
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_NOT_SUPPORTED);
  p.location = nowhere;
  p.handleTypes = 0;
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_INVALID_VALUE);
}

RULE(managed_pools_need_managed_memory, "version=13000,managed=0") {
  FIND_POOLS;
  CUmemoryPool pool;
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = nowhere};
  use(0);
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemGetMemPool(&pool, &nowhere, CU_MEM_ALLOCATION_TYPE_MANAGED), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuMemGetMemPool(&pool, &on_host, CU_MEM_ALLOCATION_TYPE_PINNED));
}

RULE(without_pools_no_place_has_one, "version=13000,pools=0") {
  FIND_POOLS;
  CUmemoryPool pool;
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = on_host};
  int there = -1;
  use(0);
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemGetMemPool(&pool, &on_host, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemGetMemPool(&pool, &on_device, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuDeviceGetAttribute(&there, CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0));
  SAME(there, 0);
}

RULE(devices_say_that_the_host_has_pools, "version=13000") {
  int there[2] = {0};
  use(0);
  OK(cuDeviceGetAttribute(&there[0], CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0));
  OK(cuDeviceGetAttribute(&there[1], CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0));
  CHECK(there[0] == 1 && there[1] == 1);
}

static CUdeviceptr allocate(size_t size, CUmemoryPool pool, CUstream s) {
  CUdeviceptr m = 0;
  OK(cuMemAllocFromPoolAsync(&m, size, pool, s));
  CHECK(m != 0);
  return m;
}

RULE(memory_of_host_pools_is_page_locked, "version=13000") {
  use(0);
  CUstream s = new_stream();
  CUmemoryPool pool = new_pool(on_host, CU_MEM_ALLOCATION_TYPE_PINNED, 4096), of = NULL;
  CUdeviceptr m = allocate(4000, pool, s), d = new_memory(4000);
  int type = 0, managed = 0;
  uint64_t used = 0;
  OK(cuStreamSynchronize(s));
  CHECK(host_writes((void *)(uintptr_t)m));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, m));
  SAME(type, CU_MEMORYTYPE_HOST);
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, m));
  SAME(managed, 0);
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, m));
  CHECK(of == pool);
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  SAME(used, 4000);
  SAME(reported("host_bytes", 0), 4000);
  CUdeviceptr more;
  IS(cuMemAllocFromPoolAsync(&more, 97, pool, s), CUDA_ERROR_OUT_OF_MEMORY); /* its maxSize */
  cudasim_reset_counters();
  memset((void *)(uintptr_t)m, 7, 4000);
  OK(cuMemcpyHtoDAsync_v2(d, (void *)(uintptr_t)m, 4000, s));
  OK(cuStreamSynchronize(s));
  SAME(reported("staged_bytes", 0), 0);
  CHECK(is_filled(d, 7, 4000));
  IS(cuMemFreeHost((void *)(uintptr_t)m), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFreeAsync(m, s));
  OK(cuStreamSynchronize(s));
  CHECK(!host_reads((void *)(uintptr_t)m));
  OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
  SAME(used, 0);
  m = allocate(1, pool, s);
  OK(cuStreamSynchronize(s));
  OK(cuMemFree_v2(m)); /* as memory of any pool */
  OK(cuMemFree_v2(d));
  OK(cuMemPoolDestroy(pool));
  OK(cuStreamDestroy_v2(s));
}

RULE(memory_of_managed_pools_is_managed, "version=13000") {
  use(0);
  CUstream s = new_stream();
  CUmemoryPool pool = new_pool(on_device, CU_MEM_ALLOCATION_TYPE_MANAGED, 0);
  CUdeviceptr m = allocate(1000, pool, s);
  int managed = 0;
  OK(cuMemsetD8Async(m, 7, 1000, s));
  OK(cuMemPrefetchAsync(m, 1000, 0, s));
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes((unsigned char *)(uintptr_t)m, 7, 1000));
  OK(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, m));
  CHECK(managed);
  SAME(reported("managed_bytes", 0), 1000);
  OK(cuMemFreeAsync(m, s));
  OK(cuStreamSynchronize(s));
  SAME(reported("managed_bytes", 0), 0);
  OK(cuMemPoolDestroy(pool));
  OK(cuStreamDestroy_v2(s));
}

RULE(host_pool_memory_is_born_in_stream_order, "version=13000", .violates = true) {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUmemoryPool pool = new_pool(on_host, CU_MEM_ALLOCATION_TYPE_PINNED, 0);
  struct gate gate;
  close_gate(&gate, a);
  CUdeviceptr m = allocate(100, pool, a);
  CUdeviceptr d = new_memory(100);
  OK(cuMemcpyHtoDAsync_v2(d, (void *)(uintptr_t)m, 100, b)); /* b did not wait for a */
  open_gate(&gate);
  OK(cuCtxSynchronize());
  OK(cuMemFreeAsync(m, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemFree_v2(d));
  OK(cuMemPoolDestroy(pool));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}
