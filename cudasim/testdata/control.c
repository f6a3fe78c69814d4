/* The functions of cudasim.h: options, faults, counters, the report. */
#include "simulator.h"

#include <sys/wait.h>
#include <unistd.h>

static const CUmemLocation device_0 = {CU_MEM_LOCATION_TYPE_DEVICE, 0};

BARE(options_are_set_before_the_first_call, "") {
  SAME(cudasim_configure("devices=2,memory=4096"), 0);
  use(1);
  SAME(cudasim_configure("devices=3"), -1);
  int count;
  OK(cuDeviceGetCount(&count));
  SAME(count, 2);
}

BARE(configured_options_take_the_place_of_the_environment, "devices=4") {
  int count;
  SAME(cudasim_configure(""), 0);
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
  SAME(count, 1);
}

BARE(bad_options_are_refused, "") {
  static const char *const bad[] = {
    "device=2",   "devices",     "devices=",         "devices=x",  "devices=17", "devices=-1",
    "delay=-1",   "delay=1s",    "schedule=quick",   "memory=",    "memory=1G",  "pools=2",
    "seed=abc",   "version=x",   "devices=2 ",       "pageable_async=yes", ",,=", "=1",
    "devices=99999999999999999999", "primary=old",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (cudasim_configure(bad[i]) != -1) stop("accepted: %s", bad[i]);
  SAME(cudasim_configure("devices=2"), 0);
  int count;
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
  SAME(count, 2);
}

BARE(every_option_is_accepted, "") {
  SAME(cudasim_configure("devices=3,delay=1,schedule=random,seed=5,pageable_async=1,memory=65536,"
                         "host_memory=65536,version=11040,pools=0,managed=0,peer=0,poison=0,primary=stable"), 0);
  OK(cuInit(0));
}

/* ---- faults ---- */

SIMULATED(the_kth_call_fails_and_does_nothing, "") {
  CUdeviceptr m[4];
  const char *function = "x";
  cudasim_fail("cuMemAlloc", 3, CUDA_ERROR_OUT_OF_MEMORY);
  SAME(cudasim_failed(&function), 0);
  CHECK(function == NULL);
  m[0] = new_memory(64);
  m[1] = new_memory(64);
  OK(cuMemsetD8_v2(m[0], 0, 64)); /* other functions do not count */
  m[2] = 77;
  IS(cuMemAlloc_v2(&m[2], 64), CUDA_ERROR_OUT_OF_MEMORY);
  SAME(m[2], 77);
  SAME(reported("allocations", 0), 2);
  CHECK(cudasim_failed(&function));
  CHECK(strcmp(function, "cuMemAlloc") == 0);
  m[3] = new_memory(64); /* once only */
  OK(cuMemFree_v2(m[0]));
  OK(cuMemFree_v2(m[1]));
  OK(cuMemFree_v2(m[3]));
}

WITH_OBJECTS(faults_name_functions_without_their_suffixes, "") {
  const char *function = NULL;
  cudasim_fail("cuMemsetD8Async", 1, 719);
  IS(cuMemsetD8Async_ptsz(m, 0, 64, NULL), 719);
  cudasim_fail("cuMemcpyHtoD", 1, 720);
  IS(cuMemcpyHtoD_v2_ptds(m, "", 1), 720);
  CHECK(cudasim_failed(&function));
  CHECK(strcmp(function, "cuMemcpyHtoD") == 0);
}

WITH_OBJECTS(any_function_may_be_the_one_that_fails, "") {
  const char *function = NULL, *name;
  cudasim_fail(NULL, 3, 999);
  OK(cuGetErrorName(1, &name)); /* never fails, and is not counted */
  OK(cuStreamQuery(NULL));
  OK(cuMemsetD8_v2(m, 0, 64));
  OK(cuGetErrorString(1, &name));
  IS(cuCtxSynchronize(), 999);
  CHECK(cudasim_failed(&function));
  CHECK(strcmp(function, "cuCtxSynchronize") == 0);
  OK(cuCtxSynchronize());
}

SIMULATED(there_is_one_fault_at_a_time, "") {
  cudasim_fail("cuMemAlloc", 1, 2);
  cudasim_fail("cuStreamSynchronize", 1, 999);
  CUdeviceptr m = new_memory(64);
  IS(cuStreamSynchronize(NULL), 999);
  cudasim_fail("cuMemFree", 1, 999);
  cudasim_fail(NULL, 0, 0); /* takes it away */
  OK(cuMemFree_v2(m));
  CHECK(!cudasim_failed(NULL));
}

SIMULATED(a_fault_may_last, "") {
  const char *function = NULL;
  cudasim_fail_times("cuCtxSynchronize", 2, 3, 900);
  OK(cuCtxSynchronize());
  for (int i = 0; i < 3; i++) {
    IS(cuCtxSynchronize(), 900);
    OK(cuStreamQuery(NULL)); /* another function */
  }
  OK(cuCtxSynchronize());
  CHECK(cudasim_failed(&function));
  CHECK(strcmp(function, "cuCtxSynchronize") == 0);
  cudasim_fail_times("cuCtxSynchronize", 1, 0, 900);
  OK(cuCtxSynchronize());
  cudasim_fail_times("cuCtxSynchronize", 1, 100, 900);
  IS(cuCtxSynchronize(), 900);
  cudasim_fail(NULL, 0, 0);
  OK(cuCtxSynchronize());
}

WITH_OBJECTS(a_call_that_fails_queues_nothing, "") {
  OK(cuMemsetD8Async(m, 1, 64, a));
  cudasim_fail("cuMemsetD8Async", 1, 700);
  IS(cuMemsetD8Async(m, 2, 64, a), 700);
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 1, 64));
  cudasim_fail("cuEventRecord", 1, 700);
  IS(cuEventRecord(e, a), 700);
  cudasim_fail("cuMemFree", 1, 700);
  IS(cuMemFree_v2(m), 700);
}

BARE(init_may_fail_on_demand, "") {
  cudasim_fail("cuInit", 1, 803); /* CUDA_ERROR_SYSTEM_DRIVER_MISMATCH */
  IS(cuInit(0), 803);
  OK(cuInit(0));
}

/* ---- counters ---- */

SIMULATED(calls_are_counted, "") {
  const char *name;
  cudasim_reset_counters();
  SAME(cudasim_calls(NULL), 0);
  CUdeviceptr m = new_memory(64);
  OK(cuMemsetD8Async(m, 1, 64, NULL));
  OK(cuMemsetD8Async_ptsz(m, 1, 64, NULL));
  IS(cuMemAlloc_v2(&m, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuGetErrorName(1, &name));
  OK(cuCtxSynchronize());
  SAME(cudasim_calls("cuMemAlloc"), 2);
  SAME(cudasim_calls("cuMemsetD8Async"), 2);
  SAME(cudasim_calls("cuMemFree"), 0);
  SAME(cudasim_calls("cuNoSuchFunction"), 0);
  SAME(cudasim_calls(NULL), 5);
  SAME(reported("cuMemsetD8Async", 0), 2);
  SAME(reported("failed_calls", 0), 1);
}

SIMULATED(not_ready_is_no_failure, "") {
  CUstream s = new_stream();
  cudasim_reset_counters();
  close_gate(s);
  STAYS_PENDING(cuStreamQuery(s));
  open_gate();
  OK(cuStreamSynchronize(s));
  SAME(reported("failed_calls", 0), 0);
}

SIMULATED(resetting_counters_keeps_what_is_live, "") {
  CUdeviceptr m = new_memory(4096);
  OK(cuMemsetD8_v2(m, 1, 64));
  OK(cuCtxSynchronize());
  CHECK(reported("memset", 0) == 64);
  cudasim_reset_counters();
  SAME(reported("memset", 0), 0);
  SAME(cudasim_calls("cuMemAlloc"), 0);
  SAME(reported("synchronisations", 0), 0);
  SAME(reported("allocations", 0), 1);
  SAME(reported("device_bytes", 0), 4096);
  CHECK(is_filled(m, 1, 64));
}

SIMULATED(violations_are_kept_until_they_are_forgotten, "", .races = true) {
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(64);
  OK(cuMemsetD8Async(m, 0, 64, a));
  OK(cuMemsetD8Async(m, 1, 64, b));
  cudasim_drain();
  CHECK(reports("violations", "cuMemsetD8Async"));
  cudasim_reset_counters();
  CHECK(reports("violations", "cuMemsetD8Async"));
  cudasim_forget_violations();
  CHECK(!reports("violations", "\""));
  OK(cuStreamSynchronize(a));
  OK(cuStreamSynchronize(b));
}

/* It has none of the threads that would do the work. */
WITH_OBJECTS(a_forked_child_does_not_wait_for_the_work_of_its_parent, "delay=200000") {
  OK(cuMemsetD8Async(m, 0, 64, a));
  pid_t child = fork();
  if (child == 0) {
    alarm(10);
    cudasim_drain();
    cudasim_pause();
    cudasim_shut_down();
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  SAME(status, 0);
  OK(cuStreamSynchronize(a));
}

SIMULATED(bytes_are_counted_by_direction, "") {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(1000), n = new_memory(1000);
  unsigned char *p = new_pinned(1000), *q = new_pinned(1000);
  static unsigned char pageable[1000];
  cudasim_reset_counters();
  OK(cuMemcpyHtoDAsync_v2(m, p, 1, s));
  OK(cuMemcpyDtoHAsync_v2(p, m, 20, s));
  OK(cuMemcpyDtoDAsync_v2(n, m, 300, s));
  OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)q, (CUdeviceptr)(uintptr_t)p, 4, s));
  OK(cuMemsetD32Async(m, 0, 5, s));
  OK(cuStreamSynchronize(s));
  SAME(reported("htod", 0), 1);
  SAME(reported("dtoh", 0), 20);
  SAME(reported("dtod", 0), 300);
  SAME(reported("htoh", 0), 4);
  SAME(reported("memset", 0), 20);
  SAME(reported("peer", 0), 0);
  SAME(reported("staged_bytes", 0), 0);
  OK(cuMemcpyHtoD_v2(m, pageable, 7));
  OK(cuMemcpyDtoH_v2(pageable, m, 8));
  OK(cuMemcpyHtoD_v2(m, p, 9));
  OK(cuCtxSynchronize());
  SAME(reported("htod", 0), 17);
  SAME(reported("dtoh", 0), 28);
  SAME(reported("staged_bytes", 0), 15);
}

BARE(copies_between_devices_are_counted, "devices=2") {
  CUcontext one = use(1);
  CUdeviceptr there = new_memory(1000);
  CUcontext zero = use(0);
  CUdeviceptr here = new_memory(1000);
  OK(cuMemcpyPeer(there, one, here, zero, 1000));
  OK(cuCtxSynchronize());
  SAME(reported("peer", 0), 1000);
  SAME(reported("dtod", 0), 0);
}

SIMULATED(bytes_are_counted_when_they_are_copied, "") {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(1000);
  cudasim_pause();
  OK(cuMemsetD8Async(m, 0, 1000, s));
  STAYS(reported("memset", 0) == 0);
  cudasim_resume();
  OK(cuStreamSynchronize(s));
  SAME(reported("memset", 0), 1000);
}

static long long synchronisations(void) {
  long long n = reported("synchronisations", 0);
  cudasim_reset_counters();
  return n;
}

SIMULATED(synchronisations_are_counted, "") {
  CUstream s = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(64);
  unsigned char *p = new_pinned(64), pageable[64] = {0};
  cudasim_reset_counters();
  OK(cuStreamSynchronize(s));
  SAME(synchronisations(), 1);
  OK(cuEventSynchronize(e));
  SAME(synchronisations(), 1);
  OK(cuCtxSynchronize());
  SAME(synchronisations(), 1);
  OK(cuMemcpyDtoH_v2(pageable, m, 64));
  SAME(synchronisations(), 1);
  OK(cuMemcpyHtoD_v2(m, p, 64));
  SAME(synchronisations(), 1);
  OK(cuMemcpyDtoHAsync_v2(pageable, m, 64, s)); /* may have to wait */
  SAME(synchronisations(), 1);
  OK(cuMemFree_v2(m));
  SAME(synchronisations(), 1);
}

SIMULATED(what_does_not_wait_is_no_synchronisation, "") {
  CUstream s = new_stream();
  CUevent e = new_event();
  unsigned char *p = new_pinned(64);
  CUdeviceptr m, n = new_memory(64);
  cudasim_reset_counters();
  OK(cuMemAllocAsync(&m, 64, s));
  OK(cuMemcpyHtoDAsync_v2(m, p, 64, s));
  OK(cuMemcpyDtoHAsync_v2(p, m, 64, s));
  OK(cuMemcpyDtoDAsync_v2(n, m, 64, s));
  OK(cuMemsetD8Async(m, 0, 64, s));
  OK(cuEventRecord(e, s));
  OK(cuStreamWaitEvent(s, e, 0));
  (void)cuEventQuery(e);
  (void)cuStreamQuery(s);
  OK(cuMemFreeAsync(m, s));
  SAME(synchronisations(), 0);
  OK(cuStreamSynchronize(s));
}

BARE(the_peak_is_kept, "devices=2") {
  use(1);
  CUdeviceptr m = new_memory(8192), n = new_memory(4096);
  OK(cuMemFree_v2(m));
  OK(cuMemFree_v2(n));
  SAME(reported("peak_device_bytes", 0), 0);
  SAME(reported("peak_device_bytes", 1), 12288);
  OK(cuMemFree_v2(new_memory(64)));
  SAME(reported("peak_device_bytes", 1), 12288);
}

SIMULATED(what_is_live_is_counted, "") {
  static unsigned char bytes[4096];
  CUdeviceptr m = new_memory(4096), managed;
  unsigned char *p = new_pinned(8192);
  CUstream s = new_stream();
  CUevent e = new_event(), f = new_event();
  OK(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemHostRegister_v2(bytes, sizeof bytes, 0));
  SAME(reported("device_bytes", 0), 4096);
  SAME(reported("managed_bytes", 0), 100);
  SAME(reported("host_bytes", 0), 8192);
  SAME(reported("registered_bytes", 0), 4096);
  SAME(reported("streams", 0), 1);
  SAME(reported("events", 0), 2);
  SAME(reported("contexts", 0), 0);
  SAME(reported("primary_references", 0), 1);
  OK(cuMemHostUnregister(bytes));
  OK(cuMemFreeHost(p));
  OK(cuMemFree_v2(m));
  OK(cuMemFree_v2(managed));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
  OK(cuEventDestroy_v2(f));
  static const char *const all[] = {"device_bytes", "managed_bytes", "host_bytes", "registered_bytes",
                                    "allocations",  "streams",       "events"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) SAME(reported(all[i], 0), 0);
}

BARE(a_report_fits_or_is_not_written, "") {
  char small[8] = "xxxxxxx";
  OK(cuInit(0));
  size_t enough = cudasim_report(NULL, 0);
  CHECK(enough > 100);
  SAME(cudasim_report(small, sizeof small), enough);
  CHECK(memchr(small, 0, sizeof small) != NULL);
  char *text = malloc(enough);
  SAME(cudasim_report(text, enough), enough);
  SAME(strlen(text) + 1, enough);
  CHECK(text[0] == '{');
  free(text);
}

/* ---- the simulator's own memory ---- */

static long resident(void) { /* in kilobytes */
  long kilobytes = 0;
  char line[128];
  FILE *f = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, f) != NULL) sscanf(line, "VmRSS: %ld", &kilobytes);
  fclose(f);
  return kilobytes;
}

static void leaves_nothing(void (*make_and_destroy)(void), int times) {
  for (int i = 0; i < 100; i++) make_and_destroy();
  long before = resident();
  for (int i = 0; i < times; i++) make_and_destroy();
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory for long */
  CHECK(resident() - before < 5000);
#else
  (void)before;
#endif
}

static void one_event(void) {
  CUevent e = new_event();
  OK(cuEventRecord(e, NULL));
  OK(cuEventSynchronize(e));
  OK(cuEventDestroy_v2(e));
}

static void one_stream(void) { OK(cuStreamDestroy_v2(new_stream())); }

static void one_context(void) {
  CUcontext context;
  OK(cuCtxCreate_v2(&context, 0, 0));
  OK(cuCtxDestroy_v2(context));
}

static void one_pool(void) {
  OK(cuMemPoolDestroy(new_pool(device_0, CU_MEM_ALLOCATION_TYPE_PINNED)));
}

SIMULATED(events_that_were_destroyed_cost_nothing, "") {
  leaves_nothing(one_event, 60000);
}

SIMULATED(streams_that_were_destroyed_cost_nothing, "") {
  leaves_nothing(one_stream, 60000);
}

SIMULATED(contexts_that_were_destroyed_cost_nothing, "") {
  leaves_nothing(one_context, 80000);
}

SIMULATED(pools_that_were_destroyed_cost_nothing, "") {
  leaves_nothing(one_pool, 60000);
}

/* ---- leaks ---- */

SIMULATED(leaked_device_memory_is_reported, "") {
  new_memory(4096);
  CHECK(reports("leaks", "on device 0"));
  CHECK(reports("leaks", "cuMemAlloc: 4096 bytes at 0x"));
}

/* LEAK(name, what leaks, text of the report) */
#define LEAK(id, make, text)        \
  SIMULATED(id, "") {               \
    make;                           \
    CHECK(reports("leaks", text));  \
  }

static char registered[4096];
static CUcontext leaked;

LEAK(leaked_page_locked_memory_is_reported, new_pinned(4096), "cuMemHostAlloc: 4096 bytes at 0x")
LEAK(leaked_registrations_are_reported, OK(cuMemHostRegister_v2(registered, sizeof registered, 0)),
     "cuMemHostRegister: 4096 bytes at 0x")
LEAK(leaked_managed_memory_is_reported, new_managed(4096), "cuMemAllocManaged: 4096 bytes at 0x")
LEAK(leaked_pool_memory_is_reported, allocate(4096, NULL), "cuMemAllocAsync: 4096 bytes at 0x")
LEAK(leaked_streams_are_reported, new_stream(), "cuStreamCreate: ")
LEAK(leaked_events_are_reported, new_event(), "cuEventCreate: ")
LEAK(leaked_pools_are_reported, new_pool(device_0, CU_MEM_ALLOCATION_TYPE_PINNED), "cuMemPoolCreate: ")
LEAK(leaked_contexts_are_reported, OK(cuCtxCreate_v2(&leaked, 0, 0)), "cuCtxCreate: ")
LEAK(leaked_references_to_primary_contexts_are_reported, OK(cuDevicePrimaryCtxRetain(&leaked, 0)),
     "cuDevicePrimaryCtxRetain: ")

SIMULATED(leaked_graphs_are_reported, "") {
  CUgraph graph;
  CUstream s = new_stream();
  OK(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
  SAME(reported("graphs", 0), 0);
  OK(cuStreamEndCapture(s, &graph));
  SAME(reported("graphs", 0), 1);
  CHECK(reports("leaks", "cuStreamEndCapture: 0x"));
}

BARE(the_last_release_frees_what_is_in_the_context, "") {
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUdeviceptr memory = new_memory(4096);
  new_stream();
  new_event();
  OK(cuDevicePrimaryCtxRelease_v2(0));
  SAME(reported("device_bytes", 0), 0);
  SAME(reported("streams", 0), 0);
  SAME(reported("events", 0), 0);
  use(0);
  IS(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}
