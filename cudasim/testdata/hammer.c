/* Many threads at once, for the sanitizers, and for bugs that only contention shows. */
#include "simulator.h"

enum { threads = 8, rounds = 60 };

struct worker {
  CUcontext context[2];
  unsigned seed;
};

static unsigned next(unsigned *seed) { return (*seed = *seed * 1103515245u + 12345u) >> 16; }

/* With memory of its own, which is_filled shares between threads. */
static bool holds(CUdeviceptr memory, unsigned char value, size_t size) {
  unsigned char bytes[4096];
  OK(cuMemcpyDtoH_v2(bytes, memory, size));
  return all_bytes(bytes, value, size);
}

/* Writes a value, sends it round over two streams and both devices, and looks
 * whether it came back. */
static void work(void *data) {
  struct worker *w = data;
  unsigned seed = w->seed;
  OK(cuCtxSetCurrent(w->context[seed % 2]));
  CUstream a = new_stream(), b = new_blocking_stream();
  unsigned char *p = new_pinned(4096);
  for (int i = 0; i < rounds; i++) {
    size_t size = next(&seed) % 4096 + 1;
    unsigned char value = (unsigned char)next(&seed);
    CUdeviceptr m, n = new_memory(size);
    CUevent e = new_event();
    memset(p, value, size);
    OK(cuMemAllocAsync(&m, size, a));
    OK(cuMemcpyHtoDAsync_v2(m, p, size, a));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(cuMemcpyDtoDAsync_v2(n, m, size, b));
    OK(cuEventRecord(e, b));
    OK(cuStreamWaitEvent(a, e, 0));
    OK(cuEventDestroy_v2(e));
    OK(cuMemsetD8Async(m, 0, size, a));
    OK(cuMemFreeAsync(m, a));
    OK(cuStreamSynchronize(b));
    CHECK(holds(n, value, size));
    if (next(&seed) % 8 == 0) OK(cuMemsetD8Async(n, 0, size, NULL));
    if (next(&seed) % 16 == 0) {
      OK(cuStreamDestroy_v2(b));
      b = new_blocking_stream();
    }
    OK(cuMemFree_v2(n));
  }
  OK(cuStreamSynchronize(a));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuMemFreeHost(p));
}

static void crowd(void) {
  struct thread thread[threads];
  struct worker worker[threads];
  CUcontext context[2] = {use(0), use(1)};
  for (unsigned i = 0; i < threads; i++) {
    worker[i] = (struct worker){{context[0], context[1]}, i};
    start(&thread[i], work, &worker[i]);
  }
  for (int i = 0; i < 20; i++) { /* concurrent queries disturb no other thread */
    (void)cudasim_report(NULL, 0);
    cudasim_pause();
    cudasim_resume();
    nap(1);
  }
  for (int i = 0; i < threads; i++) join(&thread[i]);
  for (int i = 0; i < 2; i++) {
    OK(cuCtxSetCurrent(context[i]));
    OK(cuCtxSynchronize());
  }
}

BARE(many_threads_do_not_disturb_each_other, "devices=2") { crowd(); }

BARE(many_threads_do_not_disturb_each_other_at_random, "devices=2,schedule=random,delay=30,seed=3") { crowd(); }

static void come_and_go(void *unused) {
  (void)unused;
  for (int i = 0; i < 50; i++) {
    CUcontext context;
    CUdeviceptr m;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxPushCurrent_v2(context));
    OK(cuMemAlloc_v2(&m, 64));
    OK(cuMemsetD8Async(m, 1, 64, CU_STREAM_PER_THREAD));
    OK(cuMemFree_v2(m));
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuDevicePrimaryCtxRelease_v2(0));
  }
}

BARE(many_threads_retain_and_release_a_primary_context, "") {
  struct thread thread[threads];
  OK(cuInit(0));
  for (int i = 0; i < threads; i++) start(&thread[i], come_and_go, NULL);
  for (int i = 0; i < threads; i++) join(&thread[i]);
  int active;
  unsigned flags;
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  SAME(active, 0);
}

static void init(void *unused) {
  (void)unused;
  int count;
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
  SAME(count, 2);
}

BARE(many_threads_may_be_the_first, "devices=2") {
  struct thread thread[threads];
  for (int i = 0; i < threads; i++) start(&thread[i], init, NULL);
  for (int i = 0; i < threads; i++) join(&thread[i]);
}
