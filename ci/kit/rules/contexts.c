/* Contexts. */
#define GROUP "contexts"
#include "rules.h"

static CUcontext current(void) {
  CUcontext context = NULL;
  OK(cuCtxGetCurrent(&context));
  return context;
}

static void refused_without_context(void* unused) {
  (void)unused;
  CUdeviceptr memory;
  CUdevice device;
  CUstream stream;
  CUevent event;
  void* host;
  size_t size;
  CHECK(current() == NULL);
  IS(cuMemAlloc_v2(&memory, 64), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemAllocManaged(&memory, 64, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemHostAlloc(&host, 64, 0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemAllocHost_v2(&host, 64), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemHostRegister_v2(new_pages(4096), 4096, 0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemGetInfo_v2(&size, &size), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(calls_without_a_current_context_are_refused, MANUAL,
     "Calls that allocate, create or wait for a context are INVALID_CONTEXT without a current one.", .bare = true) {
  OK(cuInit(0));
  refused_without_context(NULL);
}

RULE(default_streams_need_a_current_context, READING,
     "Allocation in, and waits for, default streams are INVALID_CONTEXT without a current context.", .bare = true) {
  CUdeviceptr memory;
  OK(cuInit(0));
  IS(cuMemAllocAsync(&memory, 64, NULL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuStreamSynchronize(NULL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(copies_need_a_current_context, READING,
     "Copies and fills are INVALID_CONTEXT without a current context, before other errors.", .bare = true) {
  char bytes[16] = "";
  OK(cuInit(0));
  IS(cuMemsetD8_v2(0, 0, 1), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemcpyHtoD_v2(0, bytes, 1), CUDA_ERROR_INVALID_CONTEXT);
}

struct made {
  CUdeviceptr memory, managed, pooled;
  unsigned char *pinned, *registered;
  CUstream stream;
  CUevent event;
};

static void query_and_wait(void* data) {
  struct made* m = data;
  CHECK(current() == NULL);
  IS(cuStreamQuery(m->stream), CUDA_SUCCESS);
  IS(cuStreamSynchronize(m->stream), CUDA_SUCCESS);
  IS(cuEventQuery(m->event), CUDA_SUCCESS);
  IS(cuEventSynchronize(m->event), CUDA_SUCCESS);
  IS(cuEventDestroy_v2(m->event), CUDA_SUCCESS);
  IS(cuStreamDestroy_v2(m->stream), CUDA_SUCCESS);
}

RULE(streams_and_events_need_no_current_context, READING,
     "Queries of, waits of the host for, and destruction of streams and events need no current context.") {
  struct made m = {.stream = new_stream(), .event = new_event()};
  on_thread(query_and_wait, &m);
}

static void record_and_wait(void* data) {
  struct made* m = data;
  IS(cuEventRecord(m->event, m->stream), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuStreamWaitEvent(m->stream, m->event, 0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemsetD8Async(m->memory, 1, 64, m->stream), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuLaunchHostFunc(m->stream, free, NULL), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(work_in_streams_needs_a_current_context, READING,
     "Records, waits of a stream, fills and host functions are INVALID_CONTEXT without a current context.",
     .driver = "take work in a stream that was made without a current context") {
  struct made m = {.stream = new_stream(), .event = new_event(), .memory = new_memory(64)};
  on_thread(record_and_wait, &m);
  OK(cuStreamSynchronize(m.stream));
  OK(cuEventDestroy_v2(m.event));
  OK(cuStreamDestroy_v2(m.stream));
  OK(cuMemFree_v2(m.memory));
}

static void free_all(void* data) {
  struct made* m = data;
  IS(cuMemFree_v2(m->memory), CUDA_SUCCESS);
  IS(cuMemFree_v2(m->managed), CUDA_SUCCESS);
  IS(cuMemFree_v2(m->pooled), CUDA_SUCCESS);
  IS(cuMemFreeHost(m->pinned), CUDA_SUCCESS);
  IS(cuMemHostUnregister(m->registered), CUDA_SUCCESS);
}

RULE(freeing_needs_no_current_context, READING,
     "cuMemFree, cuMemFreeHost and cuMemHostUnregister find the context by the address.",
     .needs = MANAGED | POOLS | REGISTER) {
  struct made m = {
      .memory = new_memory(64), .managed = new_managed(64), .pinned = new_pinned(64), .registered = new_pages(4096)};
  OK(cuMemAllocAsync(&m.pooled, 64, NULL));
  OK(cuMemHostRegister_v2(m.registered, 4096, 0));
  OK(cuStreamSynchronize(NULL));
  on_thread(free_all, &m);
}

static void has_none(void* unused) {
  (void)unused;
  CHECK(current() == NULL);
}

RULE(a_context_is_current_on_one_thread_only, MANUAL, "A new thread has no current context.") {
  on_thread(has_none, NULL);
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void allocate_in(void* context) {
  CUdeviceptr memory;
  IS(cuCtxSetCurrent(context), CUDA_SUCCESS);
  IS(cuMemAlloc_v2(&memory, 64), CUDA_SUCCESS);
  IS(cuMemFree_v2(memory), CUDA_SUCCESS);
}

RULE(a_context_may_be_current_on_many_threads, MANUAL, "A context can be current on several threads at once.") {
  on_thread(allocate_in, use(0));
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

RULE(contexts_are_a_stack, MANUAL, "Push and pop of contexts; a pop from an empty stack is INVALID_CONTEXT.",
     .needs = TWO) {
  CUcontext a = use(0), b = use(1), popped = NULL;
  CUdevice device = -1;
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == b);
  IS(cuCtxPopCurrent_v2(&popped), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxPushCurrent_v2(a));
  OK(cuCtxPushCurrent_v2(b));
  OK(cuCtxPushCurrent_v2(b));
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == b);
  CHECK(current() == b);
  OK(cuCtxGetDevice(&device));
  SAME(device, 1);
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuCtxGetDevice(&device));
  SAME(device, 0);
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == a);
}

RULE(set_current_replaces_the_top_of_the_stack, MANUAL, "cuCtxSetCurrent replaces the top of the stack; NULL pops it.",
     .needs = TWO) {
  CUcontext a = use(0), b = use(1), popped = NULL;
  OK(cuCtxSetCurrent(a));
  OK(cuCtxPushCurrent_v2(a));
  OK(cuCtxSetCurrent(b));
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == b);
  CHECK(current() == a);
  OK(cuCtxSetCurrent(NULL));
  CHECK(current() == NULL);
  IS(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
}

RULE(null_is_no_context, SEEN, "cuCtxPushCurrent of NULL is INVALID_VALUE, and cuCtxDestroy an error.", .alone = true) {
  IS(cuCtxPushCurrent_v2(NULL), CUDA_ERROR_INVALID_VALUE);
  REFUSED(cuCtxDestroy_v2(NULL));
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

RULE(garbage_is_no_context, READING,
     "cuCtxSetCurrent and cuCtxPushCurrent of memory that is no context are INVALID_CONTEXT.", .alone = true,
     .driver = "take any address as a context, and fail in a later call") {
  static long long garbage[4096];
  IS(cuCtxSetCurrent((CUcontext)(void*)garbage), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxPushCurrent_v2((CUcontext)(void*)garbage), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxPushCurrent_v2((CUcontext)(void*)e), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxSynchronize(), CUDA_SUCCESS); /* the current context is unchanged */
}

RULE(a_created_context_is_current_until_destroyed, MANUAL, "cuCtxCreate pushes the context, and cuCtxDestroy pops it.",
     .alone = true) {
  CUcontext primary = use(0), created = NULL;
  OK(cuCtxCreate_v2(&created, 0, 0));
  CHECK(created != primary);
  CHECK(current() == created);
  OK(cuCtxDestroy_v2(created));
  CHECK(current() == primary);
}

RULE(a_destroyed_context_is_refused, READING,
     "cuCtxPushCurrent and cuCtxDestroy of a destroyed context are INVALID_CONTEXT.", .alone = true,
     .driver = "make a destroyed context current, and fail in a later call") {
  CUcontext created = NULL;
  OK(cuCtxCreate_v2(&created, 0, 0));
  OK(cuCtxDestroy_v2(created));
  IS(cuCtxPushCurrent_v2(created), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxDestroy_v2(created), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(destroying_a_context_frees_its_memory, MANUAL,
     "Memory of a destroyed context is gone: cuMemFree is INVALID_VALUE.", .alone = true) {
  CUcontext created = NULL;
  OK(cuCtxCreate_v2(&created, 0, 0));
  CUdeviceptr memory = new_memory(4096);
  OK(cuCtxDestroy_v2(created));
  IS(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

RULE(streams_of_a_destroyed_context_are_refused, MANUAL, "The query of a stream of a destroyed context is an error.",
     .alone = true, .driver = "crash") {
  CUcontext created = NULL;
  OK(cuCtxCreate_v2(&created, 0, 0));
  CUstream stream = new_stream();
  OK(cuCtxDestroy_v2(created));
  REFUSED(cuStreamQuery(stream));
}

RULE(events_of_a_destroyed_context_are_refused, MANUAL, "The query of an event of a destroyed context is an error.",
     .alone = true) {
  CUcontext created = NULL;
  OK(cuCtxCreate_v2(&created, 0, 0));
  CUevent event = new_event();
  OK(cuCtxDestroy_v2(created));
  REFUSED(cuEventQuery(event));
}

RULE(destroying_a_context_waits_for_its_work, READING, "cuCtxDestroy waits for pending work of the context.",
     .alone = true) {
  CUcontext created = NULL;
  OK(cuCtxCreate_v2(&created, 0, 0));
  close_gate(new_stream());
  WAITS(cuCtxDestroy_v2(created));
}

RULE(memory_is_known_in_every_context, MANUAL, "Memory of one device is copied to the host while another is current.",
     .needs = TWO) {
  CUdeviceptr memory = new_memory(256);
  unsigned char bytes[256];
  fill(memory, 5, 256);
  use(1);
  IS(cuMemcpyDtoH_v2(bytes, memory, 256), CUDA_SUCCESS);
  CHECK(all_bytes(bytes, 5, 256));
}

RULE(contexts_have_an_api_version, MANUAL, "cuCtxGetApiVersion of a context, and of NULL for the current one.") {
  CUcontext context = use(0);
  unsigned version = 0;
  IS(cuCtxGetApiVersion(context, &version), CUDA_SUCCESS);
  CHECK(version >= 3010);
  IS(cuCtxGetApiVersion(NULL, &version), CUDA_SUCCESS);
  OK(cuCtxSetCurrent(NULL));
  IS(cuCtxGetApiVersion(NULL, &version), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(contexts_have_an_id, MANUAL,
     "cuCtxGetId of a context, and of NULL for the current one; ids of two contexts differ.", .needs = TWO) {
  CUcontext a = use(0), b = use(1);
  unsigned long long first = 0, second = 0, of_current = 0;
  OK(cuCtxGetId(a, &first));
  OK(cuCtxGetId(b, &second));
  OK(cuCtxGetId(NULL, &of_current));
  CHECK(first != second);
  CHECK(of_current == second);
  IS(cuCtxGetId(a, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxSetCurrent(NULL));
  IS(cuCtxGetId(NULL, &of_current), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(detaching_a_created_context_destroys_it, MANUAL,
     "cuCtxAttach counts the users of a context, and the last cuCtxDetach destroys it and frees its memory.",
     .alone = true) {
  CUcontext primary = use(0), created = NULL, attached = NULL;
  OK(cuCtxCreate_v2(&created, 0, 0));
  OK(cuCtxAttach(&attached, 0));
  CHECK(attached == created);
  CUdeviceptr memory = new_memory(4096);
  IS(cuCtxDetach(created), CUDA_SUCCESS);
  CHECK(current() == created);
  IS(cuCtxDetach(attached), CUDA_SUCCESS);
  CHECK(current() == primary);
  IS(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

RULE(only_the_current_context_is_detached, MANUAL, "cuCtxDetach of a context that is not current is INVALID_CONTEXT.",
     .alone = true) {
  CUcontext created = NULL, popped = NULL;
  OK(cuCtxCreate_v2(&created, 0, 0));
  OK(cuCtxPopCurrent_v2(&popped));
  IS(cuCtxDetach(created), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxDetach(NULL), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(nothing_is_attached_without_a_current_context, MANUAL,
     "cuCtxAttach is INVALID_CONTEXT without a current context.") {
  CUcontext attached = NULL;
  OK(cuCtxSetCurrent(NULL));
  IS(cuCtxAttach(&attached, 0), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(a_context_that_was_not_attached_is_not_detached, MANUAL,
     "cuCtxDetach of a primary context is INVALID_CONTEXT, while it is current too.", .alone = true,
     .driver = "detach a primary context that nobody has attached") {
  CUcontext primary = use(0);
  IS(cuCtxDetach(primary), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxSetCurrent(NULL));
  IS(cuCtxDetach(primary), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(detaching_does_not_destroy_a_primary_context, READING,
     "cuCtxAttach and cuCtxDetach of a primary context leave it as it was.", .alone = true) {
  CUcontext primary = use(0), attached = NULL;
  OK(cuCtxAttach(&attached, 0));
  CHECK(attached == primary);
  IS(cuCtxDetach(attached), CUDA_SUCCESS);
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
  CHECK(current() == primary);
}

RULE(attaching_takes_no_flags, MANUAL, "cuCtxAttach of flags, or without a place, is INVALID_VALUE.") {
  CUcontext context;
  IS(cuCtxAttach(&context, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuCtxAttach(NULL, 0), CUDA_ERROR_INVALID_VALUE);
}
