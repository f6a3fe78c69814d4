/* Calls that are permitted during a capture. */
#define GROUP "calls during a capture"
#include "capture.h"

static void is_permitted(const char* call, CUresult result, CUstream s) {
  check_result(call, result, CUDA_SUCCESS, CUDA_SUCCESS);
  if (status(s) != ACTIVE) stop("%s invalidates the capture", call);
}
#define PERMITTED(call) is_permitted(#call, call, s)

RULE(other_work_is_permitted_during_a_capture, READING,
     "Work, records and waits in a stream outside of a global capture are permitted.", .alone = true) {
  CUstream s = capturing(GLOBAL);
  PERMITTED(cuEventRecord(e, a));
  PERMITTED(cuStreamWaitEvent(a, e, 0));
  PERMITTED(cuMemsetD8Async(m, 1, 64, a));
  end_active(s);
}

RULE(streams_and_events_are_made_during_a_capture, READING,
     "Streams and events may be made and destroyed, and memory be asked about, during a global capture.",
     .alone = true) {
  CUevent e;
  CUstream other;
  size_t available, total;
  unsigned type;
  CUpointer_attribute name = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* values[] = {&type};
  CUstream s = capturing(GLOBAL);
  PERMITTED(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  PERMITTED(cuEventDestroy_v2(e));
  PERMITTED(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  PERMITTED(cuStreamDestroy_v2(other));
  PERMITTED(cuMemGetInfo_v2(&available, &total));
  PERMITTED(cuPointerGetAttributes(1, &name, values, m));
  end_active(s);
}

RULE(a_relaxed_thread_retains_contexts_during_a_capture, READING,
     "With the thread's mode relaxed, a primary context is retained and released during a global capture.",
     .alone = true) {
  CUcontext context;
  CUstream s = capturing(GLOBAL);
  mode_of_thread(RELAXED);
  PERMITTED(cuDevicePrimaryCtxRetain(&context, 0));
  PERMITTED(cuDevicePrimaryCtxRelease_v2(0));
  mode_of_thread(GLOBAL);
  end_active(s);
}

RULE(a_relaxed_thread_makes_pools_during_a_capture, READING,
     "With the thread's mode relaxed, a pool is made, trimmed and destroyed during a global capture.", .needs = POOLS,
     .alone = true) {
  CUmemoryPool pool = NULL;
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUstream s = capturing(GLOBAL);
  mode_of_thread(RELAXED);
  PERMITTED(cuMemPoolCreate(&pool, &p));
  PERMITTED(cuMemPoolTrimTo(pool, 0));
  PERMITTED(cuMemPoolDestroy(pool));
  mode_of_thread(GLOBAL);
  end_active(s);
}

/* Each in a capture of the calling thread, of modes global and thread-local. */
#define IN_BOTH_MODES(...)                         \
  for (int mode = GLOBAL; mode <= LOCAL; mode++) { \
    CUstream s = capturing(mode);                  \
    mode_of_thread(RELAXED);                       \
    __VA_ARGS__;                                   \
    mode_of_thread(GLOBAL);                        \
    end_active(s);                                 \
    OK(cuStreamDestroy_v2(s));                     \
  }

RULE(a_relaxed_thread_allocates_during_a_capture, MANUAL,
     "With the thread's mode relaxed, device memory is allocated and freed during a capture.", .alone = true) {
  CUdeviceptr m = 0;
  IN_BOTH_MODES(PERMITTED(cuMemAlloc_v2(&m, 64)), PERMITTED(cuMemFree_v2(m)))
}

RULE(a_relaxed_thread_allocates_managed_memory_during_a_capture, READING,
     "With the thread's mode relaxed, managed memory is allocated and freed during a capture.", .needs = MANAGED,
     .alone = true) {
  CUdeviceptr m = 0;
  IN_BOTH_MODES(PERMITTED(cuMemAllocManaged(&m, 64, CU_MEM_ATTACH_GLOBAL)), PERMITTED(cuMemFree_v2(m)))
}

RULE(
    a_relaxed_thread_page_locks_during_a_capture, READING,
    "With the thread's mode relaxed, page-locked memory is allocated and freed, and memory registered, during a capture.",
    .needs = REGISTER, .alone = true) {
  void* p = NULL;
  unsigned char* bytes = new_pages(4096);
  IN_BOTH_MODES(PERMITTED(cuMemHostAlloc(&p, 64, CU_MEMHOSTALLOC_PORTABLE)), PERMITTED(cuMemFreeHost(p)),
                PERMITTED(cuMemHostRegister_v2(bytes, 4096, 0)), PERMITTED(cuMemHostUnregister(bytes)))
}

RULE(
    a_relaxed_thread_waits_for_others_during_a_capture, READING,
    "With the thread's mode relaxed, events and streams without captured work are queried and waited for during a capture.",
    .alone = true) {
  OK(cuEventRecord(e, a));
  OK(cuEventSynchronize(e));
  IN_BOTH_MODES(PERMITTED(cuStreamQuery(a)), PERMITTED(cuStreamSynchronize(a)), PERMITTED(cuEventQuery(e)),
                PERMITTED(cuEventSynchronize(e)))
}

RULE(
    copies_of_other_streams_are_permitted_during_a_capture, READING,
    "Asynchronous copies of device and page-locked memory, and host functions, in a stream outside of a global capture are permitted.",
    .alone = true) {
  CUstream s = capturing(GLOBAL);
  PERMITTED(cuMemcpyAsync(m, address(p), 64, a));
  PERMITTED(cuMemcpyAsync(n, m, 64, a));
  PERMITTED(cuMemcpyAsync(address(p), n, 64, a));
  PERMITTED(cuLaunchHostFunc(a, free, NULL));
  end_active(s);
  OK(cuStreamSynchronize(a));
}

RULE(pageable_copies_of_other_streams_are_permitted_during_a_capture, READING,
     "Asynchronous copies from and to pageable memory in a stream outside of a global capture are permitted.",
     .alone = true) {
  CUdeviceptr m = new_memory(4096);
  unsigned char* p = new_pages(4096);
  CUstream s = capturing(GLOBAL);
  PERMITTED(cuMemcpyAsync(m, address(p), 4096, a));
  PERMITTED(cuMemcpyAsync(address(p), m, 4096, a));
  end_active(s);
  OK(cuStreamSynchronize(a));
}

RULE(prefetches_of_other_streams_are_permitted_during_a_capture, READING,
     "A prefetch in a stream outside of a global capture is permitted.", .needs = MANAGED | CONCURRENT, .alone = true) {
  CUdeviceptr m = new_managed(4096);
  CUstream s = capturing(GLOBAL);
  PERMITTED(cuMemPrefetchAsync(m, 4096, 0, a));
  end_active(s);
  OK(cuStreamSynchronize(a));
}

RULE(
    copies_that_wait_are_permitted_during_a_capture, SEEN,
    "Synchronous copies and fills are permitted while a non-blocking stream captures, in every mode of thread and capture.",
    .alone = true) {
  static unsigned char bytes[64];
  for (int i = 0; i < 9; i++) {
    CUstream s = capturing(i % 3);
    mode_of_thread(i / 3);
    PERMITTED(cuMemcpyHtoD_v2(m, bytes, 64));
    PERMITTED(cuMemcpyDtoH_v2(bytes, m, 64));
    PERMITTED(cuMemsetD8_v2(m, 1, 64));
    mode_of_thread(GLOBAL);
    end_active(s);
  }
}

static void copy_and_fill(void* context) {
  static unsigned char bytes[64];
  OK(cuCtxSetCurrent(context));
  IS(cuMemcpyHtoD_v2(n, bytes, 64), CUDA_SUCCESS);
  IS(cuMemcpyDtoH_v2(bytes, n, 64), CUDA_SUCCESS);
  IS(cuMemsetD8_v2(n, 1, 64), CUDA_SUCCESS);
}

RULE(copies_that_wait_are_permitted_to_other_threads_during_a_capture, SEEN,
     "Synchronous copies and fills by another thread are permitted while a non-blocking stream captures.",
     .alone = true) {
  CUstream s = capturing(GLOBAL);
  on_thread(copy_and_fill, use(0));
  end_active(s);
}

RULE(
    contexts_are_switched_during_a_capture, READING,
    "The current context and the priorities of streams are asked for, and a context made current, during a global capture.",
    .alone = true) {
  CUcontext context = use(0), current;
  int least, greatest;
  CUstream s = capturing(GLOBAL);
  PERMITTED(cuCtxGetCurrent(&current));
  PERMITTED(cuCtxSetCurrent(context));
  PERMITTED(cuCtxGetStreamPriorityRange(&least, &greatest));
  end_active(s);
}
