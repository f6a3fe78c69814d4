/* What the simulator itself needs: address space, memory, threads, time. */
#include "simulator.h"

#include <sys/resource.h>

BARE(sixteen_devices_work_at_once, "devices=16") {
  for (int i = 0; i < 16; i++) {
    use(i);
    CUstream s = new_stream();
    CUdeviceptr m = new_memory(1000);
    OK(cuMemsetD8Async(m, 7, 1000, s));
    OK(cuStreamSynchronize(s));
    CHECK(is_filled(m, 7, 1000));
    OK(cuMemFree_v2(m));
    OK(cuStreamDestroy_v2(s));
  }
}

/* The test runs this one under a limit, and allocates more than any without it. */
SIMULATED(address_space_may_run_out, "memory=17592186044416") {
  enum { most = 4096 };
  static CUdeviceptr m[most];
  int n = 0;
  CUresult r = CUDA_SUCCESS;
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return;
  while (n < most && (r = cuMemAlloc_v2(&m[n], 32 << 20)) == CUDA_SUCCESS) n++;
  SAME(r, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(n > 4);
  SAME(reported("refused_addresses", 0), 1);
  IS(cuMemAlloc_v2(&m[n], 32 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  SAME(reported("refused_addresses", 0), 2);
  while (n > 0) OK(cuMemFree_v2(m[--n]));
  m[0] = new_memory(64 << 20); /* freed mappings give way */
  OK(cuMemFree_v2(m[0]));
}

static long resident(void) { /* at most, in KiB */
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

/* Each knows of the one before, and all are waited for: clocks that list 3,000 streams for each of 3,000 take 144 MiB.
 */
SIMULATED(thousands_of_streams_take_little_memory, "") {
  measures_memory();
  enum { STREAMS = 3000, BYTES = 64 };
  static CUstream s[STREAMS];
  CUevent e = new_event();
  CUdeviceptr m = new_memory(STREAMS * BYTES);
  long before = resident();
  for (int i = 0; i < STREAMS; i++) {
    s[i] = new_stream();
    if (i) OK(cuStreamWaitEvent(s[i], e, 0));
    OK(cuMemsetD8Async(m + i * BYTES, 1, BYTES, s[i]));
    OK(cuEventRecord(e, s[i]));
  }
  for (int i = 0; i < STREAMS; i++) {
    OK(cuStreamSynchronize(s[i]));
    OK(cuMemsetD8Async(m + i * BYTES, 2, BYTES, s[i]));
  }
  OK(cuCtxSynchronize());
  CHECK(SANITIZED || resident() - before < 96 << 10);
}

SIMULATED(large_memory_costs_little_before_it_is_used, "") {
  measures_memory();
  long before = resident();
  double start = now();
  for (int i = 0; i < 10; i++) {
    CUdeviceptr m = new_memory((size_t)8 << 30);
    OK(cuMemFree_v2(m));
  }
  CHECK(now() - start < 5);
  CHECK(resident() - before < 128 << 10);
}

SIMULATED(large_allocations_cost_nothing_before_they_are_used, "poison=0") {
  CUdeviceptr m = new_memory((size_t)15 << 30);
  OK(cuMemsetD8_v2(m + ((size_t)14 << 30), 1, 64));
  OK(cuCtxSynchronize());
  CHECK(is_filled(m + ((size_t)14 << 30), 1, 64));
}

static size_t lines(const char *path) {
  FILE *f = fopen(path, "r");
  size_t n = 0;
  for (int c; (c = getc(f)) != EOF;) n += c == '\n';
  fclose(f);
  return n;
}

SIMULATED(hundred_thousand_allocations_leave_nothing, "") {
  size_t maps = 0;
  double start = now();
  for (int i = 0; i < 100000; i++) {
    OK(cuMemFree_v2(new_memory((size_t)(i % 7 + 1) * 1000)));
    if (i == 1000) maps = lines("/proc/self/maps");
  }
  CHECK(lines("/proc/self/maps") <= maps + 20);
  CHECK(now() - start < 30); /* a few seconds; much more only if it grows with the number of past allocations */
  SAME(reported("device_bytes", 0), 0);
}

SIMULATED(hundred_thousand_stream_ordered_allocations_leave_nothing, "") {
  CUstream s = new_stream();
  double start = now();
  for (int i = 0; i < 100000; i++) {
    CUdeviceptr m = allocate((size_t)(i % 7 + 1) * 1000, s);
    OK(cuMemFreeAsync(m, s));
  }
  OK(cuStreamSynchronize(s));
  CHECK(now() - start < 30);
  SAME(reported("allocations", 0), 0);
}

static int threads_of_this_process(void) {
  int n = 0;
  char line[128];
  FILE *f = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, f) != NULL) sscanf(line, "Threads: %d", &n);
  fclose(f);
  return n;
}

static void wait_for_threads_to_end(int left) {
  for (int i = 0; i < 5000 && threads_of_this_process() > left; i++) nap(1);
  CHECK(threads_of_this_process() <= left);
}

static void use_per_thread_stream(void *context) {
  OK(cuCtxSetCurrent(context));
  CUevent e = new_event();
  OK(cuEventRecord(e, CU_STREAM_PER_THREAD));
  OK(cuEventSynchronize(e));
  OK(cuEventDestroy_v2(e));
}

SIMULATED(streams_of_threads_that_ended_go_too, "") {
  CUcontext context = use(0);
  int before = threads_of_this_process();
  for (int i = 0; i < 100; i++) on_thread(use_per_thread_stream, context);
  wait_for_threads_to_end(before + 1);
}

SIMULATED(destroyed_streams_go, "") {
  int before = threads_of_this_process();
  CUdeviceptr m = new_memory(200 * 64);
  for (unsigned i = 0; i < 200; i++) {
    CUstream s = new_stream();
    OK(cuMemsetD8Async(m + i * 64, 1, 64, s));
    OK(cuStreamDestroy_v2(s));
  }
  OK(cuMemFree_v2(m));
  wait_for_threads_to_end(before + 1);
}
