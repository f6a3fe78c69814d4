/* Functions: which are there, at one address each, and what those return that are not simulated. */
#include "simulator.h"

BARE(what_is_not_simulated_says_so, "") {
  static const char *const some[] = {
    "cuLaunchKernel", "cuModuleLoadData", "cuModuleGetFunction",
    "cuArrayCreate_v2", "cuMemcpy2D_v2", "cuMemCreate", "cuGraphExecUpdate",
    "cuGraphAddKernelNode",
  };
  use(0);
  char space[256] = {0};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    /* Through a type that fits no caller: a stub looks at no argument. */
    CUresult (*f)(void *, void *, void *, void *);
    *(void **)&f = find_function(some[i]);
    if (f == NULL) stop("no %s", some[i]);
    IS(f(space, space, space, space), CUDA_ERROR_NOT_SUPPORTED);
  }
}

WITH_OBJECTS(stream_ordered_memory_is_not_captured, "") {
  CUdeviceptr m, n;
  OK(cuMemAllocAsync(&m, 64, a));
  CUgraph graph = NULL;
  int status = -1;
  OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  IS(cuMemAllocAsync(&n, 64, a), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemFreeAsync(m, a), CUDA_ERROR_NOT_SUPPORTED);
  OK(cuStreamIsCapturing(a, &status));
  SAME(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cuStreamEndCapture(a, &graph));
  OK(cuGraphDestroy(graph));
  OK(cuMemFreeAsync(m, a));
}

SIMULATED(pools_are_not_shared, "") {
  CUmemoryPool pool;
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = 1};
  p.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0};
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_NOT_SUPPORTED);
  needs_13();
  p.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  IS(cuMemPoolCreate(&pool, &p), CUDA_ERROR_NOT_SUPPORTED);
}

static void *find(const char *name, int version, uint64_t flags, CUdriverProcAddressQueryResult want) {
  void *f = (void *)1;
  CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)-1;
  OK(cuGetProcAddress_v2(name, &f, version, flags, &status));
  SAME(status, want);
  CHECK((f == NULL) == (want != CU_GET_PROC_ADDRESS_SUCCESS));
  return f;
}

BARE(a_function_has_one_address_that_the_version_selects, "") {
  CHECK(find("cuMemAlloc", 12000, 0, 0) == find_function("cuMemAlloc_v2"));
  CHECK(find("cuMemAlloc", 3020, 0, 0) == find_function("cuMemAlloc_v2"));
  CHECK(find("cuStreamDestroy", 12040, 0, 0) == find_function("cuStreamDestroy_v2"));
  CHECK(find("cuDevicePrimaryCtxRelease", 12040, 0, 0) == find_function("cuDevicePrimaryCtxRelease_v2"));
  CHECK(find("cuDevicePrimaryCtxRelease", 10000, 0, 0) == find_function("cuDevicePrimaryCtxRelease"));
  CHECK(find("cuMemcpyHtoD", 12040, 0, 0) == find_function("cuMemcpyHtoD_v2"));
  CHECK(find("cuInit", 12040, 0, 0) == find_function("cuInit"));
  CHECK(find("cuLaunchKernel", 12040, 0, 0) == find_function("cuLaunchKernel"));
  CHECK(find("cuStreamBeginCapture", 12040, 0, 0) == find_function("cuStreamBeginCapture_v2"));
  CHECK(find("cuStreamBeginCapture", 10000, 0, 0) == find_function("cuStreamBeginCapture"));
  CHECK(find("cuStreamGetCaptureInfo", 12000, 0, 0) == find_function("cuStreamGetCaptureInfo_v2"));
  CHECK(find("cuIpcOpenMemHandle", 12040, 0, 0) == find_function("cuIpcOpenMemHandle_v2"));
  CHECK(find("cuIpcOpenMemHandle", 10020, 0, 0) == find_function("cuIpcOpenMemHandle"));
  CHECK(find("cuGraphInstantiate", 12000, 0, 0) == find_function("cuGraphInstantiateWithFlags"));
  CHECK(find("cuGraphInstantiate", 11040, 0, 0) == find_function("cuGraphInstantiate_v2"));
  CHECK(find("cuGraphInstantiate", 10000, 0, 0) == find_function("cuGraphInstantiate"));
  CHECK(find("cuGetProcAddress", 12040, 0, 0) == find_function("cuGetProcAddress_v2"));
  CHECK(find("cuGetProcAddress", 11040, 0, 0) == find_function("cuGetProcAddress"));
}

BARE(a_per_thread_function_has_one_address, "") {
  enum { flag = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };
  CHECK(find("cuMemcpyHtoDAsync", 12040, flag, 0) == find_function("cuMemcpyHtoDAsync_v2_ptsz"));
  CHECK(find("cuMemcpyHtoD", 12040, flag, 0) == find_function("cuMemcpyHtoD_v2_ptds"));
  CHECK(find("cuStreamSynchronize", 12040, flag, 0) == find_function("cuStreamSynchronize_ptsz"));
  CHECK(find("cuMemAlloc", 12040, flag, 0) == find_function("cuMemAlloc_v2")); /* has no other */
  CHECK(find("cuStreamSynchronize", 12040, CU_GET_PROC_ADDRESS_LEGACY_STREAM, 0) ==
        find_function("cuStreamSynchronize"));
}

BARE(the_functions_of_cudasim_h_are_none_of_the_driver, "") {
  find("cudasim_pause", 12040, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

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
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) there += find_function(names[i]) != NULL;
  return there;
}

BARE(names_of_13_are_there_with_version_13, "") {
  needs_13();
  int version;
  OK(cuDriverGetVersion(&version));
  SAME(version, 13000);
  SAME(names_there(), sizeof names / sizeof *names);
  CHECK(find("cuMemGetMemPool", 13000, 0, CU_GET_PROC_ADDRESS_SUCCESS) == find_function("cuMemGetMemPool"));
  find("cuMemGetMemPool", 12090, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

BARE(names_of_13_are_nowhere_before, "version=12090") {
  void *f;
  SAME(names_there(), 0);
  find("cuMemGetMemPool", 12090, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  IS(cuGetProcAddress_v2("cuMemGetMemPool", &f, 13000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  CHECK(find("cuMemcpyBatchAsync", 12090, 0, 0) == find_function("cuMemcpyBatchAsync"));
}

/* A program of 12 on a driver of 13 gets the functions that it was written for. */
BARE(signatures_of_12_and_13_have_addresses_of_their_own, "") {
  needs_13();
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
    CHECK(find(changed[i].name, 12090, 0, 0) == find_function(changed[i].before));
    CHECK(find(changed[i].name, 13000, 0, 0) == find_function(changed[i].from_13));
  }
}

BARE(a_library_is_of_version_13_or_of_before, "") {
  SAME(cudasim_configure("version=13000"), -1);
  SAME(cudasim_configure("version=12090"), 0);
}
