/* Calls that are not permitted during a capture. */
#define GROUP "calls during a capture"
#include "capture.h"

RULE(a_capturing_stream_is_not_queried, MANUAL,
     "cuStreamQuery of a capturing stream is CAPTURE_UNSUPPORTED in every mode, and invalidates it.") {
  CUstream s = capturing(RELAXED);
  IS(cuStreamQuery(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(s);
}

RULE(a_capturing_stream_is_not_waited_for, MANUAL,
     "cuStreamSynchronize of a capturing stream is CAPTURE_UNSUPPORTED in every mode, and invalidates it.") {
  CUstream s = capturing(RELAXED);
  IS(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(s);
}

RULE(a_context_with_a_capture_is_not_waited_for, MANUAL,
     "cuCtxSynchronize of a context with a capture is CAPTURE_UNSUPPORTED in every mode, and invalidates it.") {
  CUstream s = capturing(RELAXED);
  IS(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(s);
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

RULE(another_context_is_waited_for_during_a_capture, READING,
     "cuCtxSynchronize of another context leaves a relaxed capture alone.", .needs = TWO) {
  CUcontext first = use(0);
  CUstream s = capturing(RELAXED);
  use(1);
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
  OK(cuCtxSetCurrent(first));
  end_active(s);
}

/* While a blocking stream captures, the legacy stream would depend on it. */
static void check_implicit(int mode, const char* what, CUresult (*call)(CUdeviceptr m, CUevent e)) {
  CUdeviceptr m = new_memory(64);
  CUevent e = new_event();
  CUstream s = new_blocking_stream();
  int is = 0;
  OK(cuStreamBeginCapture_v2(s, mode));
  IS(cuStreamIsCapturing(NULL, &is), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  SAME(status(s), ACTIVE); /* the question does no harm */
  check_result(what, call(m, e), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  IS(cuMemsetD8Async(m, 1, 64, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT); /* until it is ended */
  end_invalidated(s);
  IS(cuMemsetD8Async(m, 1, 64, NULL), CUDA_SUCCESS);
  OK(cuStreamSynchronize(NULL));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
  OK(cuMemFree_v2(m));
}

static unsigned char bytes[64];

static CUresult fill_async(CUdeviceptr m, CUevent e) { return (void)e, cuMemsetD8Async(m, 1, 64, NULL); }
static CUresult copy(CUdeviceptr m, CUevent e) { return (void)e, cuMemcpyDtoH_v2(bytes, m, 64); }
static CUresult copy_to(CUdeviceptr m, CUevent e) { return (void)e, cuMemcpyHtoD_v2(m, bytes, 64); }
static CUresult copy_later(CUdeviceptr m, CUevent e) { return (void)e, cuMemcpyHtoDAsync_v2(m, bytes, 64, NULL); }
static CUresult fill_sync(CUdeviceptr m, CUevent e) { return (void)e, cuMemsetD8_v2(m, 1, 64); }
static CUresult record(CUdeviceptr m, CUevent e) { return (void)m, cuEventRecord(e, NULL); }
static CUresult synchronize(CUdeviceptr m, CUevent e) { return (void)m, (void)e, cuStreamSynchronize(NULL); }
static CUresult query(CUdeviceptr m, CUevent e) { return (void)m, (void)e, cuStreamQuery(CU_STREAM_LEGACY); }

#define IMPLICIT(name, what, mode, call)                                                                           \
  RULE(name, MANUAL, what " while a blocking stream captures is CAPTURE_IMPLICIT, and invalidates the capture.") { \
    check_implicit(mode, what, call);                                                                              \
  }
IMPLICIT(work_in_the_legacy_stream_breaks_a_blocking_capture, "Work in the legacy stream", RELAXED, fill_async)
IMPLICIT(a_synchronous_copy_breaks_a_blocking_capture, "cuMemcpyDtoH", RELAXED, copy)
IMPLICIT(a_synchronous_copy_to_the_device_breaks_a_blocking_capture, "cuMemcpyHtoD", LOCAL, copy_to)
IMPLICIT(a_copy_in_the_legacy_stream_breaks_a_blocking_capture, "cuMemcpyHtoDAsync in the legacy stream", GLOBAL,
         copy_later)
IMPLICIT(a_synchronous_fill_breaks_a_blocking_capture, "cuMemsetD8", GLOBAL, fill_sync)
IMPLICIT(a_record_in_the_legacy_stream_breaks_a_blocking_capture, "A record in the legacy stream", GLOBAL, record)
IMPLICIT(a_wait_for_the_legacy_stream_breaks_a_blocking_capture, "cuStreamSynchronize of the legacy stream", LOCAL,
         synchronize)
IMPLICIT(a_query_of_the_legacy_stream_breaks_a_blocking_capture, "cuStreamQuery of the legacy stream", RELAXED, query)

RULE(a_non_blocking_capture_leaves_the_legacy_stream_alone, MANUAL,
     "Work in the legacy stream is permitted while a non-blocking stream captures.") {
  CUstream s = capturing(GLOBAL);
  int mode = mode_of_thread(RELAXED);
  CUdeviceptr m = new_memory(64);
  SAME(status(NULL), NONE);
  IS(cuMemsetD8_v2(m, 1, 64), CUDA_SUCCESS);
  IS(cuEventRecord(e, NULL), CUDA_SUCCESS);
  IS(cuEventSynchronize(e), CUDA_SUCCESS);
  mode_of_thread(mode);
  end_active(s);
}

static const CUmemLocation this_device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};

/* Calls that a capture does not see: potentially unsafe, says the manual. */
struct unsafe {
  CUstream other;
  CUevent event;
  CUdeviceptr memory, made, allocated;
  CUmemoryPool pool, made_pool;
  void *pinned, *to_free;
  unsigned char *pageable, *registered;
};

static CUresult allocate_memory(struct unsafe* u) { return cuMemAlloc_v2(&u->made, 64); }
static CUresult free_memory(struct unsafe* u) { return cuMemFree_v2(u->memory); }
static CUresult allocate_host(struct unsafe* u) { return cuMemHostAlloc(&u->pinned, 64, 0); }
static CUresult free_host(struct unsafe* u) { return cuMemFreeHost(u->to_free); }
static CUresult register_host(struct unsafe* u) { return cuMemHostRegister_v2(u->pageable, 4096, 0); }
static CUresult unregister_host(struct unsafe* u) { return cuMemHostUnregister(u->registered); }
static CUresult allocate_later(struct unsafe* u) { return cuMemAllocAsync(&u->made, 64, u->other); }
static CUresult allocate_from(struct unsafe* u) { return cuMemAllocFromPoolAsync(&u->made, 64, u->pool, u->other); }
static CUresult free_later(struct unsafe* u) { return cuMemFreeAsync(u->allocated, u->other); }
static CUresult set_pool(struct unsafe* u) {
  uint64_t keep = UINT64_MAX;
  return cuMemPoolSetAttribute(u->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
}
static CUresult trim_pool(struct unsafe* u) { return cuMemPoolTrimTo(u->pool, 0); }
static CUresult open_pool(struct unsafe* u) {
  CUmemAccessDesc access = {this_device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cuMemPoolSetAccess(u->pool, &access, 1);
}
static CUresult make_pool(struct unsafe* u) {
  CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = this_device};
  return cuMemPoolCreate(&u->made_pool, &props);
}
static CUresult end_pool(struct unsafe* u) { return cuMemPoolDestroy(u->pool); }
static CUresult query_event(struct unsafe* u) { return cuEventQuery(u->event); }
static CUresult wait_event(struct unsafe* u) { return cuEventSynchronize(u->event); }
static CUresult query_stream(struct unsafe* u) { return cuStreamQuery(u->other); }
static CUresult wait_stream(struct unsafe* u) { return cuStreamSynchronize(u->other); }

struct attempt {
  CUcontext context;
  struct unsafe* unsafe;
  CUresult (*call)(struct unsafe*);
  int thread_mode;
  CUresult result;
};

static void attempt(void* data) {
  struct attempt* a = data;
  OK(cuCtxSetCurrent(a->context));
  int mode = mode_of_thread(a->thread_mode);
  a->result = a->call(a->unsafe);
  mode_of_thread(mode);
}

static bool forbidden(int capture_mode, int thread_mode, bool same_thread) {
  if (thread_mode == RELAXED || capture_mode == RELAXED) return false;
  return same_thread || (capture_mode == GLOBAL && thread_mode == GLOBAL);
}

/* The call during a capture of each mode, by this or another thread in each mode. */
static void check_unsafe(CUresult (*call)(struct unsafe*)) {
  static const char* const modes[] = {"global", "thread-local", "relaxed"};
  CUcontext context = use(0);
  for (int i = 0; i < 18; i++) {
    int capture_mode = i % 3, thread_mode = i / 3 % 3;
    bool same_thread = i < 9;
    struct unsafe u = {.other = new_stream(),
                       .event = new_event(),
                       .memory = new_memory(64),
                       .to_free = new_pinned(64),
                       .pageable = new_pages(4096),
                       .registered = new_pages(4096)};
    OK(cuMemHostRegister_v2(u.registered, 4096, 0));
    if (attribute(ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0)) {
      u.pool = new_pool(this_device, CU_MEM_ALLOCATION_TYPE_PINNED);
      u.allocated = allocate(64, u.other);
    }
    OK(cuEventRecord(u.event, u.other));
    OK(cuEventSynchronize(u.event));
    struct attempt a = {context, &u, call, thread_mode, CUDA_ERROR_UNKNOWN};
    CUstream s = capturing(capture_mode);
    same_thread ? attempt(&a) : on_thread(attempt, &a);
    bool refused = forbidden(capture_mode, thread_mode, same_thread);
    if (a.result != (refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS))
      differs("%s in %s thread of mode %s, during a capture of mode %s", error_name(a.result),
              same_thread ? "the capturing" : "another", modes[thread_mode], modes[capture_mode]);
    if (status(s) != (refused ? INVALIDATED : ACTIVE))
      differs("then the capture is %s", status(s) == ACTIVE ? "active" : "not active");
    CUgraph graph = NULL;
    if (cuStreamEndCapture(s, &graph) == CUDA_SUCCESS) OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(s));
    OK(cuStreamDestroy_v2(u.other));
    OK(cuEventDestroy_v2(u.event));
  }
}

/* What is left is freed with the context. */
#define UNSAFE(name, basis, what, call, ...)                                                              \
  RULE(name, basis, what " is CAPTURE_UNSUPPORTED, and invalidates, by the modes of capture and thread.", \
       .alone = true, __VA_ARGS__) {                                                                      \
    check_unsafe(call);                                                                                   \
  }
UNSAFE(allocation_during_a_capture, MANUAL, "cuMemAlloc during a capture", allocate_memory, .needs = REGISTER)
UNSAFE(query_of_an_event_during_a_capture, SEEN, "cuEventQuery of uncaptured work", query_event, .needs = REGISTER)
UNSAFE(wait_for_an_event_during_a_capture, READING, "cuEventSynchronize of uncaptured work", wait_event,
       .needs = REGISTER)
UNSAFE(query_of_another_stream_during_a_capture, READING, "cuStreamQuery of another stream", query_stream,
       .needs = REGISTER)
UNSAFE(wait_for_another_stream_during_a_capture, READING, "cuStreamSynchronize of another stream", wait_stream,
       .needs = REGISTER)
UNSAFE(free_during_a_capture, READING, "cuMemFree during a capture", free_memory, .needs = REGISTER)
UNSAFE(page_locking_during_a_capture, READING, "cuMemHostAlloc during a capture", allocate_host, .needs = REGISTER)
UNSAFE(free_of_page_locked_memory_during_a_capture, READING, "cuMemFreeHost during a capture", free_host,
       .needs = REGISTER)
UNSAFE(registration_during_a_capture, READING, "cuMemHostRegister during a capture", register_host, .needs = REGISTER)
UNSAFE(unregistration_during_a_capture, READING, "cuMemHostUnregister during a capture", unregister_host,
       .needs = REGISTER)
UNSAFE(pool_allocation_during_a_capture, SEEN, "cuMemAllocAsync in another stream during a capture", allocate_later,
       .needs = REGISTER | POOLS)
UNSAFE(allocation_from_a_pool_during_a_capture, SEEN, "cuMemAllocFromPoolAsync in another stream during a capture",
       allocate_from, .needs = REGISTER | POOLS)
UNSAFE(free_in_stream_order_during_a_capture, SEEN, "cuMemFreeAsync in another stream during a capture", free_later,
       .needs = REGISTER | POOLS)
UNSAFE(attributes_of_pools_during_a_capture, SEEN, "cuMemPoolSetAttribute during a capture", set_pool,
       .needs = REGISTER | POOLS)
UNSAFE(trimming_a_pool_during_a_capture, READING, "cuMemPoolTrimTo during a capture", trim_pool,
       .needs = REGISTER | POOLS)
UNSAFE(access_to_a_pool_during_a_capture, READING, "cuMemPoolSetAccess during a capture", open_pool,
       .needs = REGISTER | POOLS)
UNSAFE(making_a_pool_during_a_capture, READING, "cuMemPoolCreate during a capture", make_pool,
       .needs = REGISTER | POOLS)
UNSAFE(destroying_a_pool_during_a_capture, READING, "cuMemPoolDestroy during a capture", end_pool,
       .needs = REGISTER | POOLS)

RULE(a_synchronous_copy_is_not_captured, READING,
     "cuMemcpyHtoD in a per-thread stream that captures is CAPTURE_UNSUPPORTED, and invalidates the capture.",
     .alone = true) {
  static unsigned char bytes[64];
  OK(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, RELAXED));
  IS(cuMemcpyHtoD_v2_ptds(m, bytes, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(CU_STREAM_PER_THREAD);
}

RULE(the_mode_of_a_thread_is_exchanged, MANUAL,
     "cuThreadExchangeStreamCaptureMode swaps the mode, which is global at first; an unknown one is INVALID_VALUE.") {
  int mode = RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  SAME(mode, GLOBAL);
  mode = 3;
  IS(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
  SAME(mode_of_thread(LOCAL), RELAXED);
  SAME(mode_of_thread(GLOBAL), LOCAL);
}

RULE(the_mode_of_a_thread_needs_a_place, READING,
     "cuThreadExchangeStreamCaptureMode without a place for the mode is INVALID_VALUE.", .driver = "crash") {
  IS(cuThreadExchangeStreamCaptureMode(NULL), CUDA_ERROR_INVALID_VALUE);
  SAME(mode_of_thread(GLOBAL), GLOBAL);
}

struct ending {
  CUstream stream;
  CUgraph graph;
  CUresult result;
};

static void end_elsewhere(void* data) {
  struct ending* e = data;
  e->result = cuStreamEndCapture(e->stream, &e->graph);
}

static void end_by_another_thread(int mode, CUresult want) {
  struct ending e = {.stream = capturing(mode)};
  on_thread(end_elsewhere, &e);
  IS(e.result, want);
  CHECK((e.graph == NULL) == (want != CUDA_SUCCESS));
  if (e.graph != NULL) OK(cuGraphDestroy(e.graph));
  SAME(status(e.stream), NONE);
  OK(cuStreamDestroy_v2(e.stream));
}

RULE(a_global_capture_is_ended_by_its_thread, MANUAL,
     "cuStreamEndCapture by another thread is WRONG_THREAD in mode global, and ends the capture without a graph.") {
  end_by_another_thread(GLOBAL, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
}
RULE(
    a_local_capture_is_ended_by_its_thread, MANUAL,
    "cuStreamEndCapture by another thread is WRONG_THREAD in mode thread-local, and ends the capture without a graph.") {
  end_by_another_thread(LOCAL, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
}
RULE(a_relaxed_capture_is_ended_by_any_thread, MANUAL,
     "cuStreamEndCapture by another thread succeeds in mode relaxed.") {
  end_by_another_thread(RELAXED, CUDA_SUCCESS);
}
