/* The functions of the CUDA driver API that this library calls: their names, the
 * symbols that the driver exports them under, and their parameters. Nothing of
 * NVIDIA's is included; the ABI of these symbols does not change.
 *
 * X(need, name, symbol, parameters). Without a symbol marked NEEDED no device can
 * be opened; an OPTIONAL one is missed only by the call that wants it.
 *
 * Handles (contexts, streams, events, pools) and device addresses are words.
 * https://docs.nvidia.com/cuda/cuda-driver-api/ */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct cdevice_v0_cuda_pool_props;  /* CUmemPoolProps */
struct cdevice_v0_cuda_pool_access; /* CUmemAccessDesc */

/* CUipcMemHandle and CUipcEventHandle, which are passed by value. */
struct cdevice_v0_cuda_handle {
  unsigned char bytes[64];
};

#define CDEVICE_V0_CUDA_FUNCTIONS(X, NEEDED, OPTIONAL) \
  X(NEEDED, cuInit, "cuInit", (unsigned)) \
  X(NEEDED, cuDriverGetVersion, "cuDriverGetVersion", (int*)) \
  X(NEEDED, cuGetErrorName, "cuGetErrorName", (int, const char**)) \
  X(NEEDED, cuGetErrorString, "cuGetErrorString", (int, const char**)) \
  X(NEEDED, cuDeviceGetCount, "cuDeviceGetCount", (int*)) \
  X(NEEDED, cuDeviceGet, "cuDeviceGet", (int*, int)) \
  X(NEEDED, cuDeviceGetName, "cuDeviceGetName", (char*, int, int)) \
  X(NEEDED, cuDeviceGetAttribute, "cuDeviceGetAttribute", (int*, int, int)) \
  X(NEEDED, cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t*, int)) \
  X(NEEDED, cuDeviceGetUuid, "cuDeviceGetUuid", (unsigned char*, int)) \
  X(NEEDED, cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char*, int, int)) \
  X(NEEDED, cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", (int*, int, int)) \
  X(NEEDED, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (uintptr_t*, int)) \
  X(NEEDED, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int)) \
  X(NEEDED, cuCtxGetCurrent, "cuCtxGetCurrent", (uintptr_t*)) \
  X(NEEDED, cuCtxSetCurrent, "cuCtxSetCurrent", (uintptr_t)) \
  X(NEEDED, cuCtxSynchronize, "cuCtxSynchronize", (void)) \
  X(NEEDED, cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", (uintptr_t, unsigned)) \
  X(NEEDED, cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange", (int*, int*)) \
  X(NEEDED, cuMemGetInfo, "cuMemGetInfo_v2", (size_t*, size_t*)) \
  X(NEEDED, cuMemAlloc, "cuMemAlloc_v2", (uintptr_t*, size_t)) \
  X(NEEDED, cuMemFree, "cuMemFree_v2", (uintptr_t)) \
  X(NEEDED, cuMemAllocManaged, "cuMemAllocManaged", (uintptr_t*, size_t, unsigned)) \
  X(NEEDED, cuMemHostAlloc, "cuMemHostAlloc", (uintptr_t*, size_t, unsigned)) \
  X(NEEDED, cuMemFreeHost, "cuMemFreeHost", (uintptr_t)) \
  X(NEEDED, cuMemHostRegister, "cuMemHostRegister_v2", (uintptr_t, size_t, unsigned)) \
  X(NEEDED, cuMemHostUnregister, "cuMemHostUnregister", (uintptr_t)) \
  X(NEEDED, cuPointerGetAttributes, "cuPointerGetAttributes", (unsigned, int*, void**, uintptr_t)) \
  X(NEEDED, cuMemcpyAsync, "cuMemcpyAsync", (uintptr_t, uintptr_t, size_t, uintptr_t)) \
  X(NEEDED, cuMemcpyPeerAsync, "cuMemcpyPeerAsync", (uintptr_t, uintptr_t, uintptr_t, uintptr_t, size_t, uintptr_t)) \
  X(NEEDED, cuMemsetD8Async, "cuMemsetD8Async", (uintptr_t, unsigned char, size_t, uintptr_t)) \
  X(NEEDED, cuStreamCreateWithPriority, "cuStreamCreateWithPriority", (uintptr_t*, unsigned, int)) \
  X(NEEDED, cuStreamDestroy, "cuStreamDestroy_v2", (uintptr_t)) \
  X(NEEDED, cuStreamQuery, "cuStreamQuery", (uintptr_t)) \
  X(NEEDED, cuStreamSynchronize, "cuStreamSynchronize", (uintptr_t)) \
  X(NEEDED, cuStreamWaitEvent, "cuStreamWaitEvent", (uintptr_t, uintptr_t, unsigned)) \
  X(NEEDED, cuEventCreate, "cuEventCreate", (uintptr_t*, unsigned)) \
  X(NEEDED, cuEventDestroy, "cuEventDestroy_v2", (uintptr_t)) \
  X(NEEDED, cuEventRecord, "cuEventRecord", (uintptr_t, uintptr_t)) \
  X(NEEDED, cuEventQuery, "cuEventQuery", (uintptr_t)) \
  X(NEEDED, cuEventSynchronize, "cuEventSynchronize", (uintptr_t)) \
  X(OPTIONAL, cuLaunchHostFunc, "cuLaunchHostFunc", (uintptr_t, void (*)(void*), void*)) \
  X(OPTIONAL, cuMemcpy, "cuMemcpy", (uintptr_t, uintptr_t, size_t)) \
  X(OPTIONAL, cuMemPrefetchAsync, "cuMemPrefetchAsync", (uintptr_t, size_t, int, uintptr_t)) \
  X(OPTIONAL, cuMemPoolCreate, "cuMemPoolCreate", (uintptr_t*, const struct cdevice_v0_cuda_pool_props*)) \
  X(OPTIONAL, cuMemPoolDestroy, "cuMemPoolDestroy", (uintptr_t)) \
  X(OPTIONAL, cuMemPoolSetAttribute, "cuMemPoolSetAttribute", (uintptr_t, int, void*)) \
  X(OPTIONAL, cuMemPoolGetAttribute, "cuMemPoolGetAttribute", (uintptr_t, int, void*)) \
  X(OPTIONAL, cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", (uintptr_t*, int)) \
  X(OPTIONAL, cuMemPoolSetAccess, "cuMemPoolSetAccess", (uintptr_t, const struct cdevice_v0_cuda_pool_access*, size_t)) \
  X(OPTIONAL, cuMemPoolTrimTo, "cuMemPoolTrimTo", (uintptr_t, size_t)) \
  X(OPTIONAL, cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", (uintptr_t*, size_t, uintptr_t, uintptr_t)) \
  X(OPTIONAL, cuMemFreeAsync, "cuMemFreeAsync", (uintptr_t, uintptr_t)) \
  X(OPTIONAL, cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", (int*)) \
  X(OPTIONAL, cuStreamIsCapturing, "cuStreamIsCapturing", (uintptr_t, int*)) \
  X(OPTIONAL, cuStreamBeginCapture, "cuStreamBeginCapture_v2", (uintptr_t, int)) \
  X(OPTIONAL, cuStreamEndCapture, "cuStreamEndCapture", (uintptr_t, uintptr_t*)) \
  X(OPTIONAL, cuGraphDestroy, "cuGraphDestroy", (uintptr_t)) \
  X(OPTIONAL, cuDevicePrimaryCtxGetState, "cuDevicePrimaryCtxGetState", (int, unsigned*, int*)) \
  X(OPTIONAL, cuCtxGetId, "cuCtxGetId", (uintptr_t, unsigned long long*)) \
  X(OPTIONAL, cuIpcGetMemHandle, "cuIpcGetMemHandle", (struct cdevice_v0_cuda_handle*, uintptr_t)) \
  X(OPTIONAL, cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2", (uintptr_t*, struct cdevice_v0_cuda_handle, unsigned)) \
  X(OPTIONAL, cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (uintptr_t)) \
  X(OPTIONAL, cuIpcGetEventHandle, "cuIpcGetEventHandle", (struct cdevice_v0_cuda_handle*, uintptr_t)) \
  X(OPTIONAL, cuIpcOpenEventHandle, "cuIpcOpenEventHandle", (uintptr_t*, struct cdevice_v0_cuda_handle)) \
  X(OPTIONAL, cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset_v2", (int))
