/* How programs find the driver's functions. */
#include "rules.h"

#include <dlfcn.h>

static void *symbol(const char *name) { return dlsym(RTLD_DEFAULT, name); }

static void *find4(const char *name, int version, uint64_t flags) {
  void *f = NULL;
  OK(cuGetProcAddress(name, &f, version, flags));
  return f;
}

static void *find5(const char *name, int version, uint64_t flags, int want) {
  void *f = (void *)1;
  int status = -1;
  OK(cuGetProcAddress_v2(name, &f, version, flags, &status));
  SAME(status, want);
  CHECK((f == NULL) == (want != CU_GET_PROC_ADDRESS_SUCCESS));
  return f;
}

/* Functions that programs look up by name, from the manual. */
static const char *const names[] = {
  "cuArray3DCreate_v2", "cuArrayCreate_v2", "cuArrayDestroy", "cuArrayGetDescriptor_v2",
  "cuCtxAttach", "cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxDestroy", "cuCtxDestroy_v2",
  "cuCtxDetach", "cuCtxDisablePeerAccess", "cuCtxEnablePeerAccess", "cuCtxGetApiVersion",
  "cuCtxGetCacheConfig", "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxGetFlags", "cuCtxGetLimit",
  "cuCtxGetSharedMemConfig", "cuCtxGetStreamPriorityRange", "cuCtxPopCurrent", "cuCtxPopCurrent_v2",
  "cuCtxPushCurrent", "cuCtxPushCurrent_v2", "cuCtxSetCacheConfig", "cuCtxSetCurrent", "cuCtxSetLimit",
  "cuCtxSetSharedMemConfig", "cuCtxSynchronize", "cuDestroyExternalMemory", "cuDeviceCanAccessPeer",
  "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetByPCIBusId", "cuDeviceGetCount",
  "cuDeviceGetDefaultMemPool", "cuDeviceGetLuid", "cuDeviceGetMemPool", "cuDeviceGetName",
  "cuDeviceGetP2PAttribute", "cuDeviceGetPCIBusId", "cuDeviceGetUuid", "cuDeviceGetUuid_v2",
  "cuDevicePrimaryCtxGetState", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2",
  "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRetain",
  "cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags_v2", "cuDeviceSetMemPool",
  "cuDeviceTotalMem", "cuDeviceTotalMem_v2", "cuDriverGetVersion", "cuEventCreate", "cuEventDestroy",
  "cuEventDestroy_v2", "cuEventElapsedTime", "cuEventQuery", "cuEventRecord", "cuEventRecord_ptsz",
  "cuEventRecordWithFlags", "cuEventSynchronize", "cuFuncGetAttribute", "cuFuncSetAttribute",
  "cuFuncSetCacheConfig", "cuGetErrorName", "cuGetErrorString", "cuGetExportTable", "cuGetProcAddress",
  "cuGetProcAddress_v2", "cuGraphCreate", "cuGraphDestroy", "cuGraphExecDestroy", "cuGraphLaunch",
  "cuImportExternalMemory", "cuInit", "cuIpcCloseMemHandle", "cuIpcGetEventHandle",
  "cuIpcGetMemHandle", "cuIpcOpenEventHandle", "cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2",
  "cuKernelGetFunction", "cuLaunchCooperativeKernel", "cuLaunchHostFunc", "cuLaunchHostFunc_ptsz",
  "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchKernel_ptsz", "cuLibraryLoadData", "cuLibraryUnload",
  "cuLinkAddData", "cuLinkAddData_v2", "cuLinkAddFile_v2", "cuLinkComplete", "cuLinkCreate",
  "cuLinkCreate_v2", "cuLinkDestroy", "cuMemAddressFree", "cuMemAddressReserve", "cuMemAdvise",
  "cuMemAlloc", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync",
  "cuMemAllocFromPoolAsync_ptsz", "cuMemAllocHost", "cuMemAllocHost_v2", "cuMemAllocManaged",
  "cuMemAllocPitch", "cuMemAllocPitch_v2", "cuMemAlloc_v2", "cuMemCreate", "cuMemExportToShareableHandle",
  "cuMemFree", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemFreeHost", "cuMemFree_v2",
  "cuMemGetAddressRange", "cuMemGetAddressRange_v2", "cuMemGetAllocationGranularity",
  "cuMemGetHandleForAddressRange", "cuMemGetInfo", "cuMemGetInfo_v2", "cuMemHostAlloc",
  "cuMemHostGetDevicePointer", "cuMemHostGetDevicePointer_v2", "cuMemHostGetFlags",
  "cuMemHostRegister", "cuMemHostRegister_v2", "cuMemHostUnregister", "cuMemImportFromShareableHandle",
  "cuMemMap", "cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolExportPointer",
  "cuMemPoolExportToShareableHandle", "cuMemPoolGetAccess", "cuMemPoolGetAttribute",
  "cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer", "cuMemPoolSetAccess",
  "cuMemPoolSetAttribute", "cuMemPoolTrimTo", "cuMemPrefetchAsync", "cuMemPrefetchAsync_ptsz",
  "cuMemRangeGetAttribute", "cuMemRelease", "cuMemRetainAllocationHandle", "cuMemSetAccess",
  "cuMemUnmap", "cuMemcpy", "cuMemcpy2DAsync_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2D_v2",
  "cuMemcpy3DAsync_v2", "cuMemcpy3DPeer", "cuMemcpy3D_v2", "cuMemcpyAsync", "cuMemcpyAsync_ptsz",
  "cuMemcpyAtoH_v2", "cuMemcpyDtoD", "cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2",
  "cuMemcpyDtoDAsync_v2_ptsz", "cuMemcpyDtoD_v2", "cuMemcpyDtoD_v2_ptds", "cuMemcpyDtoH",
  "cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2_ptsz", "cuMemcpyDtoH_v2",
  "cuMemcpyDtoH_v2_ptds", "cuMemcpyHtoA_v2", "cuMemcpyHtoD", "cuMemcpyHtoDAsync",
  "cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds",
  "cuMemcpyPeer", "cuMemcpyPeerAsync", "cuMemcpyPeerAsync_ptsz", "cuMemcpyPeer_ptds",
  "cuMemcpy_ptds", "cuMemsetD16", "cuMemsetD16Async", "cuMemsetD16Async_ptsz", "cuMemsetD16_v2",
  "cuMemsetD2D8Async", "cuMemsetD2D8_v2", "cuMemsetD32", "cuMemsetD32Async", "cuMemsetD32Async_ptsz",
  "cuMemsetD32_v2", "cuMemsetD8", "cuMemsetD8Async", "cuMemsetD8Async_ptsz", "cuMemsetD8_v2",
  "cuMemsetD8_v2_ptds", "cuModuleGetFunction", "cuModuleGetGlobal_v2", "cuModuleGetLoadingMode",
  "cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleUnload",
  "cuOccupancyMaxActiveBlocksPerMultiprocessor",
  "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cuOccupancyMaxPotentialBlockSize",
  "cuPointerGetAttribute", "cuPointerGetAttributes", "cuPointerSetAttribute", "cuProfilerStart",
  "cuProfilerStop", "cuStreamAddCallback", "cuStreamAddCallback_ptsz", "cuStreamAttachMemAsync",
  "cuStreamBeginCapture", "cuStreamBeginCapture_v2", "cuStreamCreate", "cuStreamCreateWithPriority",
  "cuStreamDestroy", "cuStreamDestroy_v2", "cuStreamEndCapture", "cuStreamGetCaptureInfo_v2",
  "cuStreamGetCtx", "cuStreamGetCtx_ptsz", "cuStreamGetFlags", "cuStreamGetFlags_ptsz",
  "cuStreamGetId", "cuStreamGetPriority", "cuStreamIsCapturing", "cuStreamQuery",
  "cuStreamQuery_ptsz", "cuStreamSynchronize", "cuStreamSynchronize_ptsz", "cuStreamWaitEvent",
  "cuStreamWaitEvent_ptsz", "cuStreamWaitValue32", "cuStreamWriteValue32", "cuTensorMapEncodeTiled",
  "cuTexObjectCreate", "cuTexObjectDestroy", "cuThreadExchangeStreamCaptureMode",
  "cuUserObjectCreate",
};

RULE(every_name_that_programs_look_up_is_there, "") {
  int absent = 0;
  OK(cuInit(0));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (symbol(names[i]) == NULL) {
      fprintf(stderr, "no %s\n", names[i]);
      absent++;
    }
  SAME(absent, 0);
}

RULE(names_of_later_versions_are_not_there, "") {
  OK(cuInit(0));
  CHECK(symbol("cuCtxGetDevice_v2") == NULL); /* of 13.0: programs of 12 would take it for cuCtxGetDevice */
  CHECK(symbol("cuCtxSynchronize_v2") == NULL);
}

RULE(what_is_not_simulated_says_so, "") {
  static const char *const some[] = {
    "cuLaunchKernel", "cuModuleLoadData", "cuModuleGetFunction",
    "cuArrayCreate_v2", "cuMemcpy2D_v2", "cuMemCreate", "cuGraphLaunch",
    "cuGraphInstantiateWithFlags",
  };
  use(0);
  char space[256] = {0};
  for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
    /* Through a type that fits no caller: a stub looks at no argument. */
    CUresult (*f)(void *, void *, void *, void *);
    *(void **)&f = symbol(some[i]);
    if (f == NULL) fail(__FILE__, __LINE__, "no %s", some[i]);
    IS(f(space, space, space, space), CUDA_ERROR_NOT_SUPPORTED);
  }
}

RULE(the_version_asked_for_selects_the_function, "") {
  CHECK(find5("cuMemAlloc", 12000, 0, 0) == symbol("cuMemAlloc_v2"));
  CHECK(find5("cuMemAlloc", 3020, 0, 0) == symbol("cuMemAlloc_v2"));
  CHECK(find5("cuStreamDestroy", 12040, 0, 0) == symbol("cuStreamDestroy_v2"));
  CHECK(find5("cuDevicePrimaryCtxRelease", 12040, 0, 0) == symbol("cuDevicePrimaryCtxRelease_v2"));
  CHECK(find5("cuDevicePrimaryCtxRelease", 10000, 0, 0) == symbol("cuDevicePrimaryCtxRelease"));
  CHECK(find5("cuMemcpyHtoD", 12040, 0, 0) == symbol("cuMemcpyHtoD_v2"));
  CHECK(find5("cuInit", 12040, 0, 0) == symbol("cuInit"));
  CHECK(find5("cuLaunchKernel", 12040, 0, 0) == symbol("cuLaunchKernel"));
  CHECK(find5("cuStreamBeginCapture", 12040, 0, 0) == symbol("cuStreamBeginCapture_v2"));
  CHECK(find5("cuStreamBeginCapture", 10000, 0, 0) == symbol("cuStreamBeginCapture"));
  CHECK(find5("cuStreamGetCaptureInfo", 12000, 0, 0) == symbol("cuStreamGetCaptureInfo_v2"));
  CHECK(find5("cuIpcOpenMemHandle", 12040, 0, 0) == symbol("cuIpcOpenMemHandle_v2"));
  CHECK(find5("cuIpcOpenMemHandle", 10020, 0, 0) == symbol("cuIpcOpenMemHandle"));
  CHECK(find5("cuGetProcAddress", 12040, 0, 0) == symbol("cuGetProcAddress_v2"));
  CHECK(find5("cuGetProcAddress", 11040, 0, 0) == symbol("cuGetProcAddress"));
}

RULE(functions_newer_than_the_version_asked_for_are_not_found, "") {
  find5("cuMemAllocAsync", 11010, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK(find5("cuMemAllocAsync", 11020, 0, CU_GET_PROC_ADDRESS_SUCCESS) == symbol("cuMemAllocAsync"));
  find5("cuLaunchHostFunc", 9000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK(find5("cuLaunchHostFunc", 10000, 0, CU_GET_PROC_ADDRESS_SUCCESS) == symbol("cuLaunchHostFunc"));
}

RULE(unknown_functions_are_not_found, "") {
  void *f = (void *)1;
  find5("cuNoSuchFunction", 12040, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  find5("malloc", 12040, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  find5("cudasim_pause", 12040, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  OK(cuGetProcAddress_v2("cuNoSuchFunction", &f, 12040, 0, NULL)); /* the status is optional */
  CHECK(f == NULL);
  IS(cuGetProcAddress("cuNoSuchFunction", &f, 11040, 0), CUDA_ERROR_NOT_FOUND);
}

RULE(the_function_of_four_arguments_finds_as_well, "version=11080") {
  CHECK(find4("cuMemAlloc", 11080, 0) == symbol("cuMemAlloc_v2"));
  CHECK(find4("cuMemcpyAsync", 11080, 2) == symbol("cuMemcpyAsync_ptsz"));
  CHECK(find4("cuGetProcAddress", 11080, 0) == symbol("cuGetProcAddress"));
  /* called with its five arguments it would be another function */
  void *f = NULL;
  IS(cuGetProcAddress("cuMemAllocAsync", &f, 11010, 0), CUDA_ERROR_NOT_FOUND);
}

RULE(per_thread_functions_are_found_by_flag, "") {
  enum { flag = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };
  CHECK(find5("cuMemcpyHtoDAsync", 12040, flag, 0) == symbol("cuMemcpyHtoDAsync_v2_ptsz"));
  CHECK(find5("cuMemcpyHtoD", 12040, flag, 0) == symbol("cuMemcpyHtoD_v2_ptds"));
  CHECK(find5("cuStreamSynchronize", 12040, flag, 0) == symbol("cuStreamSynchronize_ptsz"));
  CHECK(find5("cuMemAlloc", 12040, flag, 0) == symbol("cuMemAlloc_v2")); /* has no other */
  CHECK(find5("cuStreamSynchronize", 12040, CU_GET_PROC_ADDRESS_LEGACY_STREAM, 0) ==
        symbol("cuStreamSynchronize"));
}

RULE(bad_requests_for_functions_are_refused, "") {
  void *f;
  int status;
  IS(cuGetProcAddress_v2(NULL, &f, 12040, 0, &status), CUDA_ERROR_INVALID_VALUE);
  IS(cuGetProcAddress_v2("cuInit", NULL, 12040, 0, &status), CUDA_ERROR_INVALID_VALUE);
  IS(cuGetProcAddress_v2("cuInit", &f, 12040, 0x100, &status), CUDA_ERROR_INVALID_VALUE);
  IS(cuGetProcAddress_v2("cuInit", &f, 99000, 0, &status), CUDA_ERROR_INVALID_VALUE); /* newer than the driver */
}

RULE(a_missing_function_is_missing, "", .missing = "cuMemAllocAsync") {
  CHECK(symbol("cuMemAllocAsync") == NULL);
  CHECK(symbol("cuMemFreeAsync") != NULL);
  find5("cuMemAllocAsync", 12040, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  use(0);
  OK(cuMemFree_v2(new_memory(64)));
}

RULE(a_version_of_a_function_may_be_missing, "", .missing = "cuGetProcAddress_v2") {
  CHECK(symbol("cuGetProcAddress_v2") == NULL);
  CHECK(symbol("cuGetProcAddress") != NULL);
  use(0);
  CHECK(find4("cuMemAlloc", 11080, 0) == symbol("cuMemAlloc_v2"));
}
