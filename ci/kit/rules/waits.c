/* Calls that do not wait for pending work, and that do not hold up other threads while they wait. */
#define GROUP "waiting"
#include "rules.h"

static CUstream hold(void) {
  CUstream s = new_stream();
  close_gate(s);
  return s;
}

static void let_go(CUstream s) {
  open_gate();
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
}

RULE(streams_are_made_while_work_is_pending, READING, "cuStreamCreate returns while work of the device is pending.") {
  CUstream s = hold(), made = NULL;
  DOES_NOT_WAIT(cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, 0));
  DOES_NOT_WAIT(cuStreamDestroy_v2(made));
  let_go(s);
}

RULE(events_are_made_while_work_is_pending, READING, "cuEventCreate and cuEventDestroy return while work is pending.") {
  CUstream s = hold();
  CUevent e = NULL;
  DOES_NOT_WAIT(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  DOES_NOT_WAIT(cuEventDestroy_v2(e));
  let_go(s);
}

RULE(queries_do_not_wait, READING, "Queries of addresses, memory and priorities return while work is pending.") {
  CUstream s = hold();
  unsigned type = 0;
  CUpointer_attribute name = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* values[] = {&type};
  size_t available, total;
  int least, greatest;
  DOES_NOT_WAIT(cuPointerGetAttributes(1, &name, values, m));
  DOES_NOT_WAIT(cuMemGetInfo_v2(&available, &total));
  DOES_NOT_WAIT(cuCtxGetStreamPriorityRange(&least, &greatest));
  let_go(s);
}

RULE(a_primary_context_is_retained_while_work_is_pending, READING,
     "Retain, and a release that is not the last, return while work is pending.") {
  CUstream s = hold();
  CUcontext context;
  DOES_NOT_WAIT(cuDevicePrimaryCtxRetain(&context, 0));
  DOES_NOT_WAIT(cuDevicePrimaryCtxRelease_v2(0));
  let_go(s);
}

RULE(pools_are_made_while_work_is_pending, READING, "cuMemPoolCreate, TrimTo and Destroy return while work is pending.",
     .needs = POOLS) {
  CUstream s = hold();
  CUmemoryPool pool = NULL;
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  DOES_NOT_WAIT(cuMemPoolCreate(&pool, &p));
  DOES_NOT_WAIT(cuMemPoolTrimTo(pool, 0));
  DOES_NOT_WAIT(cuMemPoolDestroy(pool));
  let_go(s);
}

RULE(managed_memory_is_allocated_while_work_is_pending, READING, "cuMemAllocManaged returns while work is pending.",
     .needs = MANAGED) {
  CUstream s = hold();
  CUdeviceptr m = 0;
  DOES_NOT_WAIT(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
  let_go(s);
  OK(cuMemFree_v2(m));
}

RULE(peer_access_is_given_while_work_is_pending, READING,
     "cuCtxEnablePeerAccess and cuMemPoolSetAccess return while work is pending.", .needs = PEERS | POOLS,
     .alone = true) {
  CUcontext other = use(1);
  use(0);
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemoryPool pool = new_pool((CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ALLOCATION_TYPE_PINNED);
  CUstream s = hold();
  DOES_NOT_WAIT(cuCtxEnablePeerAccess(other, 0));
  DOES_NOT_WAIT(cuMemPoolSetAccess(pool, &access, 1));
  let_go(s);
}

RULE(work_in_default_streams_by_handle_waits_for_events, MANUAL,
     "cuStreamWaitEvent and cuEventRecord take the handles of the default streams.") {
  CUstream s = hold();
  OK(cuEventRecord(e, s));
  OK(cuStreamWaitEvent(CU_STREAM_PER_THREAD, e, 0));
  OK(cuEventRecord(f, CU_STREAM_PER_THREAD));
  STAYS_PENDING(cuEventQuery(f));
  OK(cuStreamWaitEvent(CU_STREAM_LEGACY, e, 0));
  STAYS_PENDING(cuStreamQuery(NULL));
  let_go(s);
  IS(cuEventSynchronize(f), CUDA_SUCCESS);
  IS(cuStreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
}

/* So that a stream can be full: queued behind a gate, which counts as one. */
static void queue_fills(CUstream s, int operations) {
  close_gate(s);
  for (int i = 1; i < operations; i++) {
    DOES_NOT_WAIT(cuMemsetD8Async(m, (unsigned char)i, 64, s));
    if (gate_is_open()) {
      differs("that was number %d", i + 1);
      break;
    }
  }
}

RULE(five_hundred_operations_may_be_pending, READING,
     "The 500th fill that is queued in a stream returns while all are pending.") {
  queue_fills(a, 500);
}

enum { MOST_OPERATIONS = 1022, MOST_COPIES = 55 };

RULE(a_stream_takes_1022_pending_operations, SEEN,
     "A host function and 1,021 fills can be pending in a stream, and the next fill waits until one is done.") {
  queue_fills(a, MOST_OPERATIONS);
  WAITS(cuMemsetD8Async(m, 1, 64, a));
}

RULE(
    a_stream_takes_55_pending_copies, SEEN,
    "55 copies from page-locked memory, with a record after each, can be pending in a stream, and the next copy waits.") {
  close_gate(a);
  OK(cuMemsetD8Async(m, 1, N, a));
  OK(cuEventRecord(e, a));
  for (int i = 0; i < MOST_COPIES; i++) {
    DOES_NOT_WAIT(cuMemcpyAsync(m, address(p), 64, a));
    DOES_NOT_WAIT(cuEventRecord(new_event(), a));
  }
  WAITS(cuMemcpyAsync(m, address(p), 64, a));
}

static void set_true(void* flag) { *(atomic_bool*)flag = true; }

RULE(a_host_function_runs_after_its_stream_was_destroyed, MANUAL,
     "A host function that is pending when its stream is destroyed is called.") {
  CUstream s = hold();
  static atomic_bool called;
  OK(cuLaunchHostFunc(s, set_true, &called));
  OK(cuEventRecord(e, s));
  DOES_NOT_WAIT(cuStreamDestroy_v2(s));
  open_gate();
  IS(cuEventSynchronize(e), CUDA_SUCCESS);
  CHECK(called);
}

/* ---- a thread that waits in the driver ---- */

struct waiting {
  CUcontext context;
  CUstream stream;
  CUevent event;
  CUdeviceptr memory;
  unsigned char* bytes;
  CUresult (*wait)(struct waiting*);
  CUresult result;
  atomic_bool began, ended;
};

static void wait_in_driver(void* data) {
  struct waiting* w = data;
  w->result = cuCtxSetCurrent(w->context);
  w->began = true;
  if (w->result == CUDA_SUCCESS) w->result = w->wait(w);
  w->ended = true;
}

/* While a thread waits in the call for pending work, this one queues and waits for work of another stream. */
static void check_others(CUresult (*wait)(struct waiting*)) {
  static struct waiting w;
  struct thread thread;
  CUstream free_one = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(64);
  unsigned char* p = new_pinned(64);
  w = (struct waiting){.context = use(0), .stream = new_stream(), .event = new_event(), .wait = wait};
  close_gate(w.stream);
  OK(cuEventRecord(w.event, w.stream));
  start(&thread, wait_in_driver, &w);
  while (!w.began) nap(1);
  nap(50); /* so that it is in the call */
  CHECK(!w.ended);
  DOES_NOT_WAIT(cuMemsetD8Async(m, 3, 64, free_one));
  DOES_NOT_WAIT(cuMemcpyAsync(address(p), m, 64, free_one));
  DOES_NOT_WAIT(cuEventRecord(e, free_one));
  DOES_NOT_WAIT(cuEventSynchronize(e));
  CHECK(all_bytes(p, 3, 64));
  STAYS_PENDING(cuEventQuery(w.event));
  DOES_NOT_WAIT(cuStreamDestroy_v2(free_one));
  CHECK(!w.ended);
  open_gate();
  join(&thread);
  IS(w.result, CUDA_SUCCESS);
  OK(cuStreamSynchronize(w.stream));
  OK(cuStreamDestroy_v2(w.stream));
  OK(cuEventDestroy_v2(w.event));
  OK(cuEventDestroy_v2(e));
  OK(cuMemFreeHost(p));
  OK(cuMemFree_v2(m));
}

static CUresult wait_event(struct waiting* w) { return cuEventSynchronize(w->event); }
static CUresult wait_stream(struct waiting* w) { return cuStreamSynchronize(w->stream); }
static CUresult wait_context(struct waiting* w) { return (void)w, cuCtxSynchronize(); }

RULE(waiting_for_an_event_holds_up_no_other_thread, READING,
     "While a thread waits in cuEventSynchronize, others queue work and wait for other streams.") {
  check_others(wait_event);
}
RULE(waiting_for_a_stream_holds_up_no_other_thread, READING,
     "While a thread waits in cuStreamSynchronize, others queue work and wait for other streams.") {
  check_others(wait_stream);
}
RULE(waiting_for_a_context_holds_up_no_other_thread, READING,
     "While a thread waits in cuCtxSynchronize, others queue work and wait for other streams.") {
  check_others(wait_context);
}

/* ---- a thread that waits to free memory ---- */

static CUresult fill_b(void) { return cuMemsetD8Async(m, 3, 64, b); }

/* While a thread waits in the one call, the other waits in this thread. */
static void check_held_up(struct waiting begun, const char* name, CUresult (*call)(void)) {
  static struct waiting w;
  struct thread thread;
  w = begun;
  w.context = use(0);
  close_gate(a);
  start(&thread, wait_in_driver, &w);
  while (!w.began) nap(1);
  nap(50); /* so that it is in the call */
  CHECK(!w.ended);
  watch(60);
  check_success(name, call());
  end_watch(name, true);
  join(&thread);
  IS(w.result, CUDA_SUCCESS);
  OK(cuCtxSynchronize());
}

static CUresult free_memory(struct waiting* w) { return cuMemFree_v2(w->memory); }
static CUresult free_host(struct waiting* w) { return cuMemFreeHost(w->bytes); }
static CUresult unregister(struct waiting* w) { return cuMemHostUnregister(w->bytes); }

RULE(a_free_that_waits_holds_up_work_of_other_threads, SEEN,
     "While a thread waits in cuMemFree, calls of others that queue work of the context wait too.") {
  check_held_up((struct waiting){.memory = new_memory(64), .wait = free_memory}, "cuMemsetD8Async", fill_b);
}
RULE(a_free_of_host_memory_that_waits_holds_up_work_of_other_threads, READING,
     "While a thread waits in cuMemFreeHost, calls of others that queue work of the context wait too.") {
  check_held_up((struct waiting){.bytes = new_pinned(64), .wait = free_host}, "cuMemsetD8Async", fill_b);
}
RULE(an_unregistration_that_waits_holds_up_work_of_other_threads, READING,
     "While a thread waits in cuMemHostUnregister, calls of others that queue work of the context wait too.",
     .needs = REGISTER) {
  unsigned char* bytes = new_pages(page_size());
  OK(cuMemHostRegister_v2(bytes, page_size(), 0));
  check_held_up((struct waiting){.bytes = bytes, .wait = unregister}, "cuMemsetD8Async", fill_b);
}

static void do_nothing(void* unused) { (void)unused; }
static CUresult copy_to_b(void) { return cuMemcpyHtoDAsync_v2(m, p, 64, b); }
static CUresult record_b(void) { return cuEventRecord(e, b); }
static CUresult wait_in_b(void) { return cuStreamWaitEvent(b, f, 0); }
static CUresult call_in_b(void) { return cuLaunchHostFunc(b, do_nothing, NULL); }
static CUresult allocate_in_b(void) {
  CUdeviceptr memory = 0;
  CUresult r = cuMemAllocAsync(&memory, 64, b);
  return r == CUDA_SUCCESS ? cuMemFreeAsync(memory, b) : r;
}

RULE(a_free_that_waits_holds_up_every_kind_of_work, READING,
     "While a thread waits in cuMemFree, copies, records, waits of streams, host functions and allocations wait too.",
     .needs = POOLS) {
  static const struct {
    const char* name;
    CUresult (*call)(void);
  } calls[] = {{"cuMemcpyHtoDAsync", copy_to_b},
               {"cuEventRecord", record_b},
               {"cuStreamWaitEvent", wait_in_b},
               {"cuLaunchHostFunc", call_in_b},
               {"cuMemAllocAsync", allocate_in_b}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    check_held_up((struct waiting){.memory = new_memory(64), .wait = free_memory}, calls[i].name, calls[i].call);
}

RULE(a_free_that_waits_holds_up_no_queries, READING,
     "While a thread waits in cuMemFree, others query streams and events, and wait for them.") {
  static struct waiting w;
  struct thread thread;
  w = (struct waiting){.context = use(0), .memory = new_memory(64), .wait = free_memory};
  OK(cuMemsetD8Async(m, 3, 64, b));
  OK(cuEventRecord(e, b));
  close_gate(a);
  start(&thread, wait_in_driver, &w);
  while (!w.began) nap(1);
  nap(50); /* so that it is in the call */
  DOES_NOT_WAIT(cuEventSynchronize(e));
  DOES_NOT_WAIT(cuStreamSynchronize(b));
  STAYS_PENDING(cuStreamQuery(a));
  CHECK(!w.ended);
  open_gate();
  join(&thread);
  IS(w.result, CUDA_SUCCESS);
}

/* ---- a thread that waits for room in a stream ---- */

static CUresult fill_a(struct waiting* w) { return (void)w, cuMemsetD8Async(n, 1, 64, a); }

/* While another thread waits in a fill of a, which is full. */
static void check_full(void (*check)(void)) {
  static struct waiting w;
  struct thread thread;
  w = (struct waiting){.context = use(0), .wait = fill_a};
  queue_fills(a, MOST_OPERATIONS);
  start(&thread, wait_in_driver, &w);
  while (!w.began) nap(1);
  nap(50); /* so that it is in the call */
  CHECK(!w.ended);
  check();
  open_gate();
  join(&thread);
  IS(w.result, CUDA_SUCCESS);
}

static void work_in_another_stream_waits(void) { WAITS(cuMemsetD8Async(o, 3, 64, b)); }

static void queries_do_not_wait_for_room(void) {
  DOES_NOT_WAIT(cuEventQuery(f));
  DOES_NOT_WAIT(cuStreamSynchronize(b));
  STAYS_PENDING(cuStreamQuery(a));
}

RULE(a_full_stream_holds_up_work_of_other_streams, READING,
     "While a thread waits in a call that queues work in a full stream, calls that queue work in others wait too.") {
  check_full(work_in_another_stream_waits);
}
RULE(a_full_stream_holds_up_no_queries, SEEN,
     "While a thread waits in a call that queues work in a full stream, others query streams and events.") {
  check_full(queries_do_not_wait_for_room);
}
