/* Calls that wait for work of others: as drivers were seen to do, and as little of it as that. A program that lets the
 * work go only after the call stands still. */
#include "order.h"

/* ---- frees ---- */

STANDS_STILL(a_free_before_held_work_is_let_go, "cuMemFree_v2", "") {
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, N));
  hold(a);
  mark();
  WRONG(cuMemFree_v2(memory));
  let_go();
  if (!wrong) OK(cuMemFree_v2(memory));
}

STANDS_STILL(a_free_of_page_locked_memory_before_held_work_is_let_go, "cuMemFreeHost", "") {
  void *memory;
  OK(cuMemHostAlloc(&memory, N, 0));
  hold(a);
  mark();
  WRONG(cuMemFreeHost(memory));
  let_go();
  if (!wrong) OK(cuMemFreeHost(memory));
}

STANDS_STILL(an_unregistration_before_held_work_is_let_go, "cuMemHostUnregister", "") {
  unsigned char *memory = new_pageable(N);
  OK(cuMemHostRegister_v2(memory, N, 0));
  hold(a);
  mark();
  WRONG(cuMemHostUnregister(memory));
  let_go();
  if (!wrong) OK(cuMemHostUnregister(memory));
}

/* ---- work beside a call that waits ---- */

struct caller {
  CUcontext context;
  const char *name; /* of the call */
  CUresult (*call)(const struct caller *);
  CUdeviceptr memory;
  unsigned char *bytes;
};

static void call_it(void *data) {
  const struct caller *c = data;
  OK(cuCtxSetCurrent(c->context));
  OK(c->call(c));
}

/* Another thread makes a call, in which it waits for the held stream a in the wrong variant, or which it has made in
 * the right one. This thread queues work in b meanwhile, before it lets a go. */
static void work_beside(struct caller c) {
  struct thread thread;
  OK(cuCtxGetCurrent(&c.context));
  const uint64_t before = cudasim_calls(c.name);
  if (wrong) start(&thread, call_it, &c);
  while (wrong && cudasim_calls(c.name) == before) nap(1);
  mark();
  OK(cuMemsetD8Async(m, 7, N, b));
  OK(cuStreamSynchronize(b));
  let_go();
  if (!wrong) start(&thread, call_it, &c);
  join(&thread);
  expect(m, 7);
}

static CUresult free_memory(const struct caller *c) { return cuMemFree_v2(c->memory); }
static CUresult free_bytes(const struct caller *c) { return cuMemFreeHost(c->bytes); }
static CUresult unregister_bytes(const struct caller *c) { return cuMemHostUnregister(c->bytes); }
static CUresult fill_a(const struct caller *c) { return cuMemsetD16Async(c->memory, 7, N / 2, a); }

STANDS_STILL(work_while_another_thread_frees, "cuMemsetD8Async", "") {
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, N));
  hold(a);
  work_beside((struct caller){.name = "cuMemFree", .call = free_memory, .memory = memory});
}

STANDS_STILL(work_while_another_thread_frees_page_locked_memory, "cuMemsetD8Async", "") {
  void *memory;
  OK(cuMemHostAlloc(&memory, N, 0));
  hold(a);
  work_beside((struct caller){.name = "cuMemFreeHost", .call = free_bytes, .bytes = memory});
}

STANDS_STILL(work_while_another_thread_unregisters, "cuMemsetD8Async", "") {
  unsigned char *memory = new_pageable(N);
  OK(cuMemHostRegister_v2(memory, N, 0));
  hold(a);
  work_beside((struct caller){.name = "cuMemHostUnregister", .call = unregister_bytes, .bytes = memory});
}

/* ---- full streams ---- */

enum { MOST_OPERATIONS = 1022, MOST_COPIES = 55 };

/* The host function that holds the stream is one of them. */
static void fill_up(CUstream s) {
  hold(s);
  for (int i = 1; i < MOST_OPERATIONS; i++) OK(cuMemsetD8Async(n, 1, N, s));
}

STANDS_STILL(one_operation_more_than_a_stream_takes, "cuMemsetD8Async", "") {
  fill_up(a);
  OK(cuMemsetD8Async(m, 7, N, PICK(b, a)));
  let_go();
  expect(m, 7);
}

STANDS_STILL(work_while_another_thread_waits_for_room, "cuMemsetD8Async", "") {
  fill_up(a);
  work_beside((struct caller){.name = "cuMemsetD16Async", .call = fill_a, .memory = n});
}

/* As a program that uploads column after column from plain memory. */
STANDS_STILL(one_small_upload_more_than_a_stream_takes, "cuMemcpyHtoDAsync_v2", "") {
  const unsigned char *in = new_pageable(N);
  hold(a);
  for (int i = 0; i < MOST_COPIES; i++) {
    OK(cuMemcpyHtoDAsync_v2(n, in, 64, a));
    OK(cuEventRecord(e, a));
  }
  OK(cuMemcpyHtoDAsync_v2(m, in, N, PICK(b, a)));
  let_go();
  expect(m, 1);
}

/* ---- host functions ---- */

static atomic_bool begun, held;

static void run_until_let_go(void *unused) {
  (void)unused;
  begun = true;
  await_flag(&held);
  while (!gate_is_open()) nap(1);
}

/* That of b is not called before that of a has returned. */
STANDS_STILL(a_host_function_that_waits_for_that_of_another_stream, "cuStreamSynchronize", "") {
  begun = held = false;
  OK(cuLaunchHostFunc(a, run_until_let_go, NULL));
  await_flag(&begun);
  hold(a);
  held = true;
  if (wrong) OK(cuLaunchHostFunc(b, raise_flag, &flag));
  OK(cuMemsetD8Async(m, 7, N, b));
  mark();
  OK(cuStreamSynchronize(b));
  let_go();
  if (!wrong) OK(cuLaunchHostFunc(b, raise_flag, &flag));
  await_flag(&flag);
  expect(m, 7);
}

/* ---- batches ---- */

static CUresult copy_batch(CUdeviceptr to, const unsigned char *from, int order, CUstream s) {
  CUdeviceptr in = address(from);
  size_t size = N, start = 0;
  CUmemcpyAttributes each = {.srcAccessOrder = order};
  return cuMemcpyBatchAsync_v2(&to, &in, &size, 1, &each, &start, 1, s);
}

enum {
  IN_STREAM_ORDER = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
  DURING_THE_CALL = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL
};

STANDS_STILL(a_batch_that_reads_during_the_call, "copy_batch", "version=13000") {
  hold(a);
  OK(copy_batch(m, p, PICK(IN_STREAM_ORDER, DURING_THE_CALL), a));
  let_go();
  expect(m, 1);
}

STANDS_STILL(a_batch_that_reads_plain_memory_in_stream_order, "copy_batch", "version=13000") {
  const unsigned char *plain = new_pageable(N);
  hold(a);
  OK(copy_batch(m, PICK(p, plain), IN_STREAM_ORDER, a));
  let_go();
  expect(m, 1);
}

/* It has waited for the stream, and no manual says so. */
PAIR(a_batch_that_waits_orders_nothing, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "version=13000") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(copy_batch(o, p, DURING_THE_CALL, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

CHANGES(a_source_is_overwritten_that_a_batch_reads_in_stream_order, "cuMemcpyBatchAsync", "version=13000") {
  OK(copy_batch(m, p, PICK(DURING_THE_CALL, IN_STREAM_ORDER), a));
  memset(p, 2, N);
  expect(m, 1);
}

/* Of four copies, the attribute of the third is that of the fourth, too. */
CHANGES(a_source_is_overwritten_behind_an_attribute_of_a_batch, "cuMemcpyBatchAsync", "version=13000") {
  enum { PART = N / 4 };
  CUdeviceptr to[4], from[4];
  size_t sizes[] = {PART, PART, PART, PART}, starts[] = {0, 2};
  CUmemcpyAttributes each[] = {{.srcAccessOrder = IN_STREAM_ORDER}, {.srcAccessOrder = DURING_THE_CALL}};
  for (unsigned i = 0; i < 4; i++) to[i] = m + i * PART, from[i] = address(p) + i * PART;
  OK(cuMemcpyBatchAsync_v2(to, from, sizes, 4, each, starts, 2, a));
  memset(p + PART * PICK(3, 1), 2, PART);
  expect(m, 1);
}
