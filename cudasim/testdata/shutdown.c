/* cudasim_shut_down. */
#include "simulator.h"

BARE(after_the_shut_down_every_call_is_refused, "") {
  CUcontext context = NULL;
  CUdevice device;
  CUdeviceptr m;
  int version;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  cudasim_shut_down();
  IS(cuInit(0), CUDA_ERROR_DEINITIALIZED);
  IS(cuDriverGetVersion(&version), CUDA_ERROR_DEINITIALIZED);
  IS(cuDeviceGet(&device, 0), CUDA_ERROR_DEINITIALIZED);
  IS(cuCtxSynchronize(), CUDA_ERROR_DEINITIALIZED);
  IS(cuCtxGetCurrent(&context), CUDA_ERROR_DEINITIALIZED);
  IS(cuMemAlloc_v2(&m, 64), CUDA_ERROR_DEINITIALIZED);
  cudasim_pause();
  cudasim_resume();
  cudasim_shut_down(); /* once more is nothing */
}

BARE(memory_is_gone_after_the_shut_down, "") {
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  unsigned char *small = new_pinned(100), *large = new_pinned(16 << 20);
  CUdeviceptr m = new_memory(100);
  OK(cuMemsetD8_v2(m, 1, 100));
  CHECK(host_reads(small) && host_reads(large));
  cudasim_shut_down();
  CHECK(!host_reads(small) && !host_reads(large));
  IS(cuMemFreeHost(small), CUDA_ERROR_DEINITIALIZED);
  SAME(reported("allocations", 0), 3); /* the report does not change */
  CHECK(reports("leaks", "cuMemHostAlloc"));
}

static CUstream held;

static void wait_for_it(void *data) { *(CUresult *)data = cuStreamSynchronize(held); }

static void never(void *data) { *(bool *)data = true; }

static void never_called_back(CUstream stream, CUresult status, void *data) {
  (void)stream, (void)status;
  *(bool *)data = true;
}

/* Work that has not begun is not done, and a call that waits for it answers so. */
BARE(a_shut_down_ends_waits, "delay=60000000") {
  CUcontext context;
  struct thread thread;
  CUresult answer = -1;
  static bool called;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUstream s = new_stream();
  held = s;
  CUevent e = new_event();
  OK(cuEventRecord(e, s));
  OK(cuLaunchHostFunc(s, never, &called));
  OK(cuStreamAddCallback(s, never_called_back, &called, 0));
  start(&thread, wait_for_it, &answer);
  nap(20);
  cudasim_shut_down();
  join(&thread);
  SAME(answer, CUDA_ERROR_DEINITIALIZED);
  nap(20);
  CHECK(!called);
  CHECK(reports("leaks", "cuEventCreate"));
}

BARE(a_shut_down_ends_holds_and_pauses, "") {
  CUcontext context;
  struct thread thread;
  CUresult answer = -1;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUstream s = new_stream();
  held = s;
  CUevent e = new_event();
  OK(cudasim_event_hold(e));
  cudasim_pause();
  OK(cuEventRecord(e, s));
  start(&thread, wait_for_it, &answer);
  nap(20);
  cudasim_shut_down();
  join(&thread);
  SAME(answer, CUDA_ERROR_DEINITIALIZED);
  CHECK(reports("leaks", "cuEventCreate"));
}

/* The running operation completes: its memory is not unmapped under it. */
BARE(a_shut_down_waits_for_what_runs, "") {
  CUcontext context;
  const size_t size = (size_t)256 << 20;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(size);
  OK(cuMemsetD16Async(m, 7, size / 2, s));
  nap(20);
  cudasim_shut_down();
  nap(50);
  SAME(reported("memset", 0) % (long long)size, 0); /* all of it, or never begun */
  CHECK(reports("leaks", "cuMemAlloc"));
}

static atomic_bool stopped;

static void work(void *data) {
  CUcontext context = data;
  unsigned char bytes[4096];
  while (!stopped) {
    CUdeviceptr m = 0;
    void *p = NULL;
    CUstream s = NULL;
    /* Any of these may be the first that is refused. */
    cuCtxSetCurrent(context);
    cuStreamCreate(&s, 0);
    cuMemAlloc_v2(&m, sizeof bytes);
    cuMemAllocHost_v2(&p, 8 << 20);
    cuMemcpyHtoDAsync_v2(m, bytes, sizeof bytes, s);
    cuMemsetD8Async((CUdeviceptr)(uintptr_t)p, 1, 8 << 20, s);
    cuMemcpyDtoH_v2(bytes, m, sizeof bytes);
    cuMemFreeHost(p);
    cuMemFree_v2(m);
    cuStreamDestroy_v2(s);
  }
}

BARE(a_shut_down_disturbs_no_thread, "") {
  CUcontext context;
  struct thread threads[6];
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  for (int i = 0; i < 6; i++) start(&threads[i], work, context);
  nap(100);
  cudasim_shut_down();
  nap(20);
  stopped = true;
  for (int i = 0; i < 6; i++) join(&threads[i]);
  IS(cuCtxSynchronize(), CUDA_ERROR_DEINITIALIZED);
  CHECK(reports("leaks", "cuDevicePrimaryCtxRetain"));
}
