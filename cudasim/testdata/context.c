/* Initialisation, devices, contexts. */
#include "rules.h"

#include <sys/wait.h>
#include <unistd.h>

RULE(calls_before_init_are_refused, "") {
  int count;
  CUdevice device;
  CUcontext context;
  CUdeviceptr memory;
  CUstream stream;
  IS(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuMemAlloc_v2(&memory, 64), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuStreamCreate(&stream, 0), CUDA_ERROR_NOT_INITIALIZED);
}

RULE(version_is_known_before_init, "") {
  int version = 0;
  OK(cuDriverGetVersion(&version));
  SAME(version, 12040);
  IS(cuDriverGetVersion(NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(version_is_an_option, "version=11080") {
  int version = 0;
  OK(cuInit(0));
  OK(cuDriverGetVersion(&version));
  SAME(version, 11080);
}

RULE(init_takes_no_flags_and_may_be_repeated, "") {
  IS(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  OK(cuInit(0));
  OK(cuInit(0));
}

RULE(without_devices_init_fails, "devices=0") {
  int count;
  IS(cuInit(0), CUDA_ERROR_NO_DEVICE);
  CHECK(cuDeviceGetCount(&count) != CUDA_SUCCESS);
}

RULE(devices_are_counted, "devices=3") {
  int count;
  CUdevice device;
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
  SAME(count, 3);
  OK(cuDeviceGet(&device, 2));
  IS(cuDeviceGet(&device, 3), CUDA_ERROR_INVALID_DEVICE);
  IS(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  IS(cuDeviceGet(NULL, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuDeviceGetCount(NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(sixteen_devices_are_possible, "devices=16") {
  CUdevice device;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, 15));
  use(15);
  CUdeviceptr m = new_memory(64);
  OK(cuMemsetD8_v2(m, 3, 64));
  CHECK(is_filled(m, 3, 64));
  OK(cuMemFree_v2(m));
}

RULE(devices_differ, "devices=2") {
  CUdevice device[2], found;
  CUuuid uuid[2];
  char bus[2][32];
  OK(cuInit(0));
  for (int i = 0; i < 2; i++) {
    OK(cuDeviceGet(&device[i], i));
    OK(cuDeviceGetUuid_v2(&uuid[i], device[i]));
    OK(cuDeviceGetPCIBusId(bus[i], sizeof bus[i], device[i]));
    OK(cuDeviceGetByPCIBusId(&found, bus[i]));
    SAME(found, device[i]);
  }
  CHECK(memcmp(&uuid[0], &uuid[1], sizeof uuid[0]) != 0);
  CHECK(strcmp(bus[0], bus[1]) != 0);
  IS(cuDeviceGetUuid_v2(&uuid[0], 2), CUDA_ERROR_INVALID_DEVICE);
}

RULE(device_name_fits_its_buffer, "") {
  char name[256], little[5] = "xxxx";
  OK(cuInit(0));
  OK(cuDeviceGetName(name, sizeof name, 0));
  CHECK(strlen(name) > 3);
  OK(cuDeviceGetName(little, 4, 0)); /* cut, and ended */
  SAME(strlen(little), 3);
  CHECK(strncmp(name, little, 3) == 0);
}

RULE(device_total_memory_is_the_option, "memory=16777216") {
  size_t total;
  OK(cuInit(0));
  OK(cuDeviceTotalMem_v2(&total, 0));
  SAME(total, 16777216);
  IS(cuDeviceTotalMem_v2(&total, 7), CUDA_ERROR_INVALID_DEVICE);
}

RULE(device_attributes, "") {
  int value;
  OK(cuInit(0));
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
  SAME(value, 1);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
  SAME(value, 1);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
  SAME(value, 1);
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 0));
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  CHECK(value >= 5);
  IS(cuDeviceGetAttribute(&value, 100000, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1), CUDA_ERROR_INVALID_DEVICE);
}

RULE(errors_have_names, "") {
  const char *s = NULL;
  OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &s));
  CHECK(strcmp(s, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
  OK(cuGetErrorName(CUDA_SUCCESS, &s));
  CHECK(strcmp(s, "CUDA_SUCCESS") == 0);
  OK(cuGetErrorName(CUDA_ERROR_NOT_READY, &s));
  CHECK(strcmp(s, "CUDA_ERROR_NOT_READY") == 0);
  OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &s));
  CHECK(strcmp(s, "out of memory") == 0);
  IS(cuGetErrorName(12345, &s), CUDA_ERROR_INVALID_VALUE);
  CHECK(s == NULL);
  s = "";
  IS(cuGetErrorString(12345, &s), CUDA_ERROR_INVALID_VALUE);
  CHECK(s == NULL);
  OK(cuInit(0)); /* not needed before */
}

static void refused_without_context(void *unused) {
  (void)unused;
  CUcontext context = (CUcontext)1;
  CUdeviceptr memory;
  CUdevice device;
  CUstream stream;
  CUevent event;
  void *host;
  size_t size;
  char bytes[16] = "";
  OK(cuCtxGetCurrent(&context));
  CHECK(context == NULL);
  IS(cuMemAlloc_v2(&memory, 64), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemAllocManaged(&memory, 64, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemAllocAsync(&memory, 64, NULL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemAllocHost_v2(&host, 64), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemHostRegister_v2(bytes, sizeof bytes, 0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemGetInfo_v2(&size, &size), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuStreamSynchronize(NULL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemsetD8_v2(0, 0, 1), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemcpyHtoD_v2(0, bytes, 1), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(calls_without_a_current_context_are_refused, "") {
  OK(cuInit(0));
  refused_without_context(NULL);
}

struct made {
  CUdeviceptr memory, managed, of_pool;
  unsigned char *pinned, *registered;
  CUstream stream;
  CUevent event;
};

static void wait_and_free(void *data) {
  struct made *m = data;
  OK(cuStreamQuery(m->stream));
  OK(cuStreamSynchronize(m->stream));
  OK(cuEventQuery(m->event));
  OK(cuEventSynchronize(m->event));
  OK(cuMemFree_v2(m->memory));
  OK(cuMemFree_v2(m->managed));
  OK(cuMemFree_v2(m->of_pool));
  OK(cuMemFreeHost(m->pinned));
  OK(cuMemHostUnregister(m->registered));
  OK(cuEventDestroy_v2(m->event));
  OK(cuStreamDestroy_v2(m->stream));
}

/* The driver finds the context by the address or the handle. */
RULE(waiting_and_freeing_need_no_current_context, "") {
  static unsigned char bytes[4096];
  use(0);
  struct made m = {.memory = new_memory(64),
                   .pinned = new_pinned(64),
                   .registered = bytes,
                   .stream = new_stream(),
                   .event = new_event()};
  OK(cuMemAllocManaged(&m.managed, 64, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemAllocAsync(&m.of_pool, 64, m.stream));
  OK(cuMemHostRegister_v2(bytes, sizeof bytes, 0));
  OK(cuEventRecord(m.event, m.stream));
  OK(cuStreamSynchronize(m.stream));
  on_thread(wait_and_free, &m);
}

RULE(a_context_is_current_on_one_thread_only, "") {
  use(0);
  on_thread(refused_without_context, NULL);
  OK(cuCtxSynchronize());
}

RULE(retaining_a_primary_context_makes_nothing_current, "") {
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  refused_without_context(NULL);
  OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void allocate_in(void *context) {
  CUdeviceptr memory;
  OK(cuCtxSetCurrent(context));
  OK(cuMemAlloc_v2(&memory, 64));
  OK(cuMemFree_v2(memory));
}

RULE(a_context_may_be_current_on_many_threads, "") {
  on_thread(allocate_in, use(0));
  OK(cuCtxSynchronize());
}

RULE(the_primary_context_is_one_and_counted, "devices=2") {
  CUcontext first, second, other;
  unsigned flags;
  int active = -1;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  SAME(active, 0);
  OK(cuDevicePrimaryCtxRetain(&first, 0));
  OK(cuDevicePrimaryCtxRetain(&second, 0));
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  CHECK(first == second && first != other);
  SAME(reported("primary_references", 0), 2);
  SAME(reported("primary_references", 1), 1);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  SAME(active, 1);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  SAME(active, 0);
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  SAME(active, 1);
  OK(cuDevicePrimaryCtxRelease_v2(1));
}

RULE(a_primary_context_is_not_released_more_often_than_retained, "") {
  CUcontext context;
  OK(cuInit(0));
  IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuDevicePrimaryCtxRelease_v2(5), CUDA_ERROR_INVALID_DEVICE);
  IS(cuDevicePrimaryCtxRetain(&context, 5), CUDA_ERROR_INVALID_DEVICE);
}

RULE(a_released_primary_context_stays_on_the_stack_and_is_useless, "") {
  CUcontext context, current;
  CUdeviceptr memory;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxPushCurrent_v2(context));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuCtxGetCurrent(&current)); /* "does not pop the context from stack in any circumstances" */
  CHECK(current == context);
  CUresult r = cuMemAlloc_v2(&memory, 64);
  CHECK(r == CUDA_ERROR_INVALID_CONTEXT || r == CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

RULE(a_primary_context_can_be_retained_again, "") {
  for (int i = 0; i < 3; i++) {
    CUcontext context;
    CUdeviceptr memory;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&memory, 64));
    OK(cuMemFree_v2(memory));
    OK(cuDevicePrimaryCtxRelease_v2(0));
  }
}

RULE(the_last_release_frees_what_is_in_the_context, "") {
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

RULE(resetting_a_primary_context_frees_what_is_in_it, "") {
  use(0);
  CUdeviceptr memory = new_memory(4096);
  OK(cuDevicePrimaryCtxReset_v2(0));
  SAME(reported("device_bytes", 0), 0);
  unsigned char byte;
  CHECK(cuMemcpyDtoH_v2(&byte, memory, 1) != CUDA_SUCCESS);
}

RULE(primary_context_flags_are_kept, "") {
  unsigned flags = 0;
  int active;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
  OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
  SAME(flags & 7, CU_CTX_SCHED_BLOCKING_SYNC);
  IS(cuDevicePrimaryCtxSetFlags_v2(0, 3), CUDA_ERROR_INVALID_VALUE);
}

RULE(contexts_are_a_stack, "devices=2") {
  CUcontext a = use(0), b = use(1), popped, current;
  CUdevice device;
  OK(cuCtxPopCurrent_v2(&popped)); /* the context that use() has set */
  CHECK(popped == b);
  IS(cuCtxPopCurrent_v2(&popped), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPushCurrent_v2(a));
  OK(cuCtxPushCurrent_v2(b));
  OK(cuCtxPushCurrent_v2(b));
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == b);
  OK(cuCtxGetCurrent(&current));
  CHECK(current == b);
  OK(cuCtxGetDevice(&device));
  SAME(device, 1);
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuCtxGetDevice(&device));
  SAME(device, 0);
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == a);
  IS(cuCtxPopCurrent_v2(&popped), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(set_current_replaces_the_top_of_the_stack, "devices=2") {
  CUcontext a = use(0), b = use(1), current;
  OK(cuCtxSetCurrent(a));
  OK(cuCtxPushCurrent_v2(a));
  OK(cuCtxSetCurrent(b));
  OK(cuCtxPopCurrent_v2(&current));
  CHECK(current == b);
  OK(cuCtxGetCurrent(&current));
  CHECK(current == a);
  OK(cuCtxSetCurrent(NULL)); /* pops */
  OK(cuCtxGetCurrent(&current));
  CHECK(current == NULL);
  OK(cuCtxSetCurrent(NULL));
}

RULE(garbage_is_no_context, "") {
  use(0);
  int garbage[64] = {0};
  CUevent event = new_event();
  IS(cuCtxPushCurrent_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxSetCurrent((CUcontext)(void *)garbage), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxPushCurrent_v2((CUcontext)(void *)garbage), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxPushCurrent_v2((CUcontext)(void *)event), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxDestroy_v2((CUcontext)(void *)garbage), CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxDestroy_v2(NULL) != CUDA_SUCCESS);
  OK(cuCtxSynchronize()); /* the current context is unchanged */
  OK(cuEventDestroy_v2(event));
}

RULE(a_created_context_is_current_until_destroyed, "") {
  CUcontext primary = use(0), created, current;
  OK(cuCtxCreate_v2(&created, 0, 0));
  CHECK(created != primary);
  OK(cuCtxGetCurrent(&current));
  CHECK(current == created);
  SAME(reported("contexts", 0), 1);
  OK(cuCtxDestroy_v2(created));
  OK(cuCtxGetCurrent(&current));
  CHECK(current == primary);
  IS(cuCtxPushCurrent_v2(created), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxDestroy_v2(created), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(destroying_a_context_frees_what_is_in_it, "") {
  CUcontext created;
  use(0);
  OK(cuCtxCreate_v2(&created, 0, 0));
  CUdeviceptr memory = new_memory(4096);
  CUstream stream = new_stream();
  CUevent event = new_event();
  OK(cuMemsetD8Async(memory, 1, 4096, stream));
  OK(cuEventRecord(event, stream));
  OK(cuCtxDestroy_v2(created));
  IS(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamQuery(stream) != CUDA_SUCCESS);
  CHECK(cuEventQuery(event) != CUDA_SUCCESS);
}

RULE(memory_is_known_in_every_context, "devices=2") {
  CUcontext a = use(0);
  CUdeviceptr memory = new_memory(256);
  OK(cuMemsetD8_v2(memory, 5, 256));
  OK(cuCtxSynchronize());
  use(1);
  CHECK(is_filled(memory, 5, 256));
  OK(cuCtxSetCurrent(a));
  OK(cuMemFree_v2(memory));
}

RULE(synchronizing_a_context_waits_for_all_its_streams, "") {
  use(0);
  CUstream s = new_stream();
  atomic_bool done;
  queue_late(&done, s);
  OK(cuCtxSynchronize());
  CHECK(done);
  OK(cuStreamDestroy_v2(s));
}

RULE(synchronizing_a_context_waits_for_no_other, "devices=2") {
  use(0);
  CUstream s = new_stream();
  struct gate gate;
  close_gate(&gate, s);
  use(1);
  OK(cuCtxSynchronize());
  CHECK(!gate.open);
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
}

RULE(stream_priorities_have_a_range, "") {
  use(0);
  int least = 9, greatest = 9;
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  CHECK(least >= greatest && least == 0);
  OK(cuCtxGetStreamPriorityRange(NULL, NULL));
}

RULE(contexts_have_an_api_version, "") {
  CUcontext context = use(0);
  unsigned version = 0;
  OK(cuCtxGetApiVersion(context, &version));
  CHECK(version >= 3010);
  OK(cuCtxGetApiVersion(NULL, &version)); /* the current one */
  OK(cuCtxSetCurrent(NULL));
  IS(cuCtxGetApiVersion(NULL, &version), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(contexts_have_an_id, "devices=2") {
  CUcontext a = use(0), b = use(1);
  unsigned long long first = 0, second = 0, current = 0;
  OK(cuCtxGetId(a, &first));
  OK(cuCtxGetId(b, &second));
  OK(cuCtxGetId(NULL, &current));
  CHECK(first != second);
  SAME(current, second);
  IS(cuCtxGetId(a, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxSetCurrent(NULL));
  IS(cuCtxGetId(NULL, &current), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxGetId((CUcontext)8, &current), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(a_child_that_forked_has_no_driver, "") {
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  pid_t child = fork();
  CHECK(child >= 0);
  if (!child) {
    int count;
    _exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED && cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                  cuCtxSetCurrent(context) == CUDA_ERROR_NOT_INITIALIZED
              ? 0
              : 1);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  OK(cuDevicePrimaryCtxRelease_v2(0));
}
