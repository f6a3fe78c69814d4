/* How programs find the driver's functions. */
#define GROUP "functions"
#include "rules.h"

static void* find(const char* name, int version, uint64_t flags, CUdriverProcAddressQueryResult want) {
  void* f = NULL;
  CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)-1;
  OK(cuGetProcAddress_v2(name, &f, version, flags, &status));
  if (status != want) differs("the status of %s for %d is %d, not %d", name, version, (int)status, (int)want);
  if ((f == NULL) != (want != CU_GET_PROC_ADDRESS_SUCCESS)) differs("%s for %d is %p", name, version, f);
  return f;
}

static int driver_version(void) {
  int version = 0;
  OK(cuDriverGetVersion(&version));
  if (version < 12000) skip("the driver is older than CUDA 12");
  return version;
}

/* A driver may have several addresses for a function, so that they cannot be compared: the function is called. */
RULE(functions_are_found_by_name_and_version, MANUAL, "cuGetProcAddress finds functions by names without _v2.") {
  const int version = driver_version();
  CUresult (*allocate)(CUdeviceptr*, size_t);
  CUdeviceptr m = 0;
  *(void**)&allocate = find("cuMemAlloc", 12000, 0, CU_GET_PROC_ADDRESS_SUCCESS);
  if (allocate != NULL) {
    IS(allocate(&m, 64), CUDA_SUCCESS);
    OK(cuMemFree_v2(m));
  }
  static const char* const names[] = {
      "cuInit",           "cuStreamDestroy", "cuMemcpyHtoD",     "cuMemcpyAsync",          "cuStreamBeginCapture",
      "cuLaunchHostFunc", "cuMemAllocAsync", "cuGetProcAddress", "cuStreamGetCaptureInfo", "cuDevicePrimaryCtxRelease",
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) find(names[i], version, 0, CU_GET_PROC_ADDRESS_SUCCESS);
}

RULE(functions_newer_than_the_version_asked_for_are_not_found, MANUAL,
     "A function that is newer than the version asked for is VERSION_NOT_SUFFICIENT.") {
  driver_version();
  find("cuMemAllocAsync", 11010, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  find("cuMemAllocAsync", 11020, 0, CU_GET_PROC_ADDRESS_SUCCESS);
  find("cuLaunchHostFunc", 9000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  find("cuLaunchHostFunc", 10000, 0, CU_GET_PROC_ADDRESS_SUCCESS);
}

RULE(unknown_functions_are_not_found, MANUAL,
     "An unknown name is SYMBOL_NOT_FOUND and no error; the status is optional.") {
  void* f = (void*)1;
  driver_version();
  find("cuNoSuchFunction", 12000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  find("malloc", 12000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  IS(cuGetProcAddress_v2("cuNoSuchFunction", &f, 12000, 0, NULL), CUDA_SUCCESS);
  CHECK(f == NULL);
}

RULE(the_function_of_four_arguments_fails_for_unknown_names, MANUAL,
     "The cuGetProcAddress of CUDA 11 is NOT_FOUND for names that are unknown or newer.") {
  void* f = NULL;
  IS(cuGetProcAddress("cuMemAlloc", &f, 11040, 0), CUDA_SUCCESS);
  CHECK(f != NULL);
  IS(cuGetProcAddress("cuNoSuchFunction", &f, 11040, 0), CUDA_ERROR_NOT_FOUND);
  IS(cuGetProcAddress("cuMemAllocAsync", &f, 11010, 0), CUDA_ERROR_NOT_FOUND);
}

RULE(per_thread_functions_are_found_by_flag, MANUAL,
     "With the flag PER_THREAD_DEFAULT_STREAM, the function found works in the per-thread stream.") {
  enum { FLAG = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };
  CUresult (*query)(CUstream);
  driver_version();
  *(void**)&query = find("cuStreamQuery", 12000, FLAG, CU_GET_PROC_ADDRESS_SUCCESS);
  close_gate(CU_STREAM_PER_THREAD);
  STAYS_PENDING(query(NULL));
  open_gate();
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  find("cuMemAlloc", 12000, FLAG, CU_GET_PROC_ADDRESS_SUCCESS);
}

RULE(unknown_flags_of_requests_are_refused, READING, "cuGetProcAddress with unknown flags is INVALID_VALUE.",
     .alone = true) {
  void* f;
  driver_version();
  IS(cuGetProcAddress_v2("cuInit", &f, 12000, 0x100, NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(bad_requests_for_functions_are_refused, READING, "cuGetProcAddress without a name or a place is INVALID_VALUE.",
     .alone = true, .driver = "crash in one of the two calls") {
  void* f;
  CUdriverProcAddressQueryResult status;
  driver_version();
  IS(cuGetProcAddress_v2(NULL, &f, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
  IS(cuGetProcAddress_v2("cuInit", NULL, 12000, 0, &status), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_version_newer_than_the_driver_is_refused, READING,
     "cuGetProcAddress for a version that is newer than the driver is INVALID_VALUE.") {
  void* f;
  driver_version();
  IS(cuGetProcAddress_v2("cuInit", &f, 99000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(every_function_of_the_simulator_is_the_driver_s, MANUAL,
     "Each function that is simulated, and not newer than the driver, is exported by it.", .bare = true) {
  static const struct {
    const char* name;
    int since;
  } functions[] = {
#define API(base, suffix, since, body, params, args) {#base #suffix, since},
#define API_EARLY API
#define API_PTDS(base, suffix, since, body, params, args) {#base #suffix, since}, {#base #suffix "_ptds", since},
#define API_PTSZ(base, suffix, since, body, params, args) {#base #suffix, since}, {#base #suffix "_ptsz", since},
#include "../../../cudasim/src/functions.h"
#undef API
#undef API_EARLY
#undef API_PTDS
#undef API_PTSZ
  };
  int version = 0;
  OK(cuDriverGetVersion(&version));
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (functions[i].since <= version && find_function(functions[i].name) == NULL)
      differs("%s of version %d is absent", functions[i].name, functions[i].since);
}

RULE(a_driver_has_no_names_of_later_versions, READING,
     "A driver before CUDA 13 does not export the names that CUDA 13 added.", .bare = true) {
  int version = 0;
  OK(cuDriverGetVersion(&version));
  if (version >= 13000) skip("the driver is of CUDA 13");
  CHECK(find_function("cuCtxGetDevice_v2") == NULL);
  CHECK(find_function("cuCtxSynchronize_v2") == NULL);
  CHECK(find_function("cuMemGetMemPool") == NULL);
}

/* Functions that programs look up by name, from the manual: some in a string. */
static const char* const names[] = {
    "cuArray3DCreate_v2 cuArrayCreate_v2 cuArrayDestroy cuArrayGetDescriptor_v2 cuCtxAttach cuCtxCreate",
    "cuCtxCreate_v2 cuCtxCreate_v3 cuCtxDestroy cuCtxDestroy_v2 cuCtxDetach cuCtxDisablePeerAccess",
    "cuCtxEnablePeerAccess cuCtxGetApiVersion cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetDevice cuCtxGetFlags",
    "cuCtxGetLimit cuCtxGetSharedMemConfig cuCtxGetStreamPriorityRange cuCtxPopCurrent cuCtxPopCurrent_v2",
    "cuCtxPushCurrent cuCtxPushCurrent_v2 cuCtxSetCacheConfig cuCtxSetCurrent cuCtxSetLimit",
    "cuCtxSetSharedMemConfig cuCtxSynchronize cuDestroyExternalMemory cuDeviceCanAccessPeer cuDeviceGet",
    "cuDeviceGetAttribute cuDeviceGetByPCIBusId cuDeviceGetCount cuDeviceGetDefaultMemPool cuDeviceGetLuid",
    "cuDeviceGetMemPool cuDeviceGetName cuDeviceGetP2PAttribute cuDeviceGetPCIBusId cuDeviceGetUuid",
    "cuDeviceGetUuid_v2 cuDevicePrimaryCtxGetState cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxRetain cuDevicePrimaryCtxSetFlags",
    "cuDevicePrimaryCtxSetFlags_v2 cuDeviceSetMemPool cuDeviceTotalMem cuDeviceTotalMem_v2 cuDriverGetVersion",
    "cuEventCreate cuEventDestroy cuEventDestroy_v2 cuEventElapsedTime cuEventQuery cuEventRecord",
    "cuEventRecord_ptsz cuEventRecordWithFlags cuEventSynchronize cuFuncGetAttribute cuFuncSetAttribute",
    "cuFuncSetCacheConfig cuGetErrorName cuGetErrorString cuGetExportTable cuGetProcAddress",
    "cuGetProcAddress_v2 cuGraphCreate cuGraphDestroy cuGraphExecDestroy cuGraphLaunch cuImportExternalMemory",
    "cuInit cuIpcCloseMemHandle cuIpcGetEventHandle cuIpcGetMemHandle cuIpcOpenEventHandle cuIpcOpenMemHandle",
    "cuIpcOpenMemHandle_v2 cuKernelGetFunction cuLaunchCooperativeKernel cuLaunchHostFunc",
    "cuLaunchHostFunc_ptsz cuLaunchKernel cuLaunchKernelEx cuLaunchKernel_ptsz cuLibraryLoadData",
    "cuLibraryUnload cuLinkAddData cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete cuLinkCreate",
    "cuLinkCreate_v2 cuLinkDestroy cuMemAddressFree cuMemAddressReserve cuMemAdvise cuMemAlloc cuMemAllocAsync",
    "cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemAllocHost",
    "cuMemAllocHost_v2 cuMemAllocManaged cuMemAllocPitch cuMemAllocPitch_v2 cuMemAlloc_v2 cuMemCreate",
    "cuMemExportToShareableHandle cuMemFree cuMemFreeAsync cuMemFreeAsync_ptsz cuMemFreeHost cuMemFree_v2",
    "cuMemGetAddressRange cuMemGetAddressRange_v2 cuMemGetAllocationGranularity cuMemGetHandleForAddressRange",
    "cuMemGetInfo cuMemGetInfo_v2 cuMemHostAlloc cuMemHostGetDevicePointer cuMemHostGetDevicePointer_v2",
    "cuMemHostGetFlags cuMemHostRegister cuMemHostRegister_v2 cuMemHostUnregister",
    "cuMemImportFromShareableHandle cuMemMap cuMemPoolCreate cuMemPoolDestroy cuMemPoolExportPointer",
    "cuMemPoolExportToShareableHandle cuMemPoolGetAccess cuMemPoolGetAttribute",
    "cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuMemPoolSetAccess cuMemPoolSetAttribute",
    "cuMemPoolTrimTo cuMemPrefetchAsync cuMemPrefetchAsync_ptsz cuMemRangeGetAttribute cuMemRelease",
    "cuMemRetainAllocationHandle cuMemSetAccess cuMemUnmap cuMemcpy cuMemcpy2DAsync_v2 cuMemcpy2DUnaligned_v2",
    "cuMemcpy2D_v2 cuMemcpy3DAsync_v2 cuMemcpy3DPeer cuMemcpy3D_v2 cuMemcpyAsync cuMemcpyAsync_ptsz",
    "cuMemcpyAtoH_v2 cuMemcpyDtoD cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz",
    "cuMemcpyDtoD_v2 cuMemcpyDtoD_v2_ptds cuMemcpyDtoH cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoHAsync_v2_ptsz cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds cuMemcpyHtoA_v2 cuMemcpyHtoD",
    "cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds",
    "cuMemcpyPeer cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz cuMemcpyPeer_ptds cuMemcpy_ptds cuMemsetD16",
    "cuMemsetD16Async cuMemsetD16Async_ptsz cuMemsetD16_v2 cuMemsetD2D8Async cuMemsetD2D8_v2 cuMemsetD32",
    "cuMemsetD32Async cuMemsetD32Async_ptsz cuMemsetD32_v2 cuMemsetD8 cuMemsetD8Async cuMemsetD8Async_ptsz",
    "cuMemsetD8_v2 cuMemsetD8_v2_ptds cuModuleGetFunction cuModuleGetGlobal_v2 cuModuleGetLoadingMode",
    "cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
    "cuOccupancyMaxPotentialBlockSize cuPointerGetAttribute cuPointerGetAttributes cuPointerSetAttribute",
    "cuProfilerStart cuProfilerStop cuStreamAddCallback cuStreamAddCallback_ptsz cuStreamAttachMemAsync",
    "cuStreamBeginCapture cuStreamBeginCapture_v2 cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy",
    "cuStreamDestroy_v2 cuStreamEndCapture cuStreamGetCaptureInfo_v2 cuStreamGetCtx cuStreamGetCtx_ptsz",
    "cuStreamGetFlags cuStreamGetFlags_ptsz cuStreamGetId cuStreamGetPriority cuStreamIsCapturing",
    "cuStreamQuery cuStreamQuery_ptsz cuStreamSynchronize cuStreamSynchronize_ptsz cuStreamWaitEvent",
    "cuStreamWaitEvent_ptsz cuStreamWaitValue32 cuStreamWriteValue32 cuTensorMapEncodeTiled cuTexObjectCreate",
    "cuTexObjectDestroy cuThreadExchangeStreamCaptureMode cuUserObjectCreate",
};

RULE(every_name_that_programs_look_up_is_there, MANUAL,
     "Functions that the manual of CUDA 12 has, and programs look up by name, are exported.", .bare = true) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char some[128], *rest = some;
    snprintf(some, sizeof some, "%s", names[i]);
    for (char* name; (name = strtok_r(NULL, " ", &rest)) != NULL;)
      if (find_function(name) == NULL) differs("%s is absent", name);
  }
}
