/* Streams. */
#include "rules.h"

RULE(queued_work_is_not_done_when_the_call_returns, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char *p = new_pinned(64);
  memset(p, 1, 64);
  cudasim_pause();
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuMemcpyDtoHAsync_v2(p, m, 64, s));
  STAYS_PENDING(cuStreamQuery(s));
  STAYS(all_bytes(p, 1, 64));
  cudasim_resume();
  OK(cuStreamSynchronize(s));
  OK(cuStreamQuery(s));
  CHECK(all_bytes(p, 2, 64));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
  OK(cuMemFreeHost(p));
}

RULE(work_of_a_stream_is_done_in_order, "schedule=random,delay=20") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(512);
  unsigned char *p = new_pinned(512);
  for (int i = 0; i < 200; i++) {
    OK(cuMemsetD8Async(m, (unsigned char)i, 256, s));
    OK(cuMemcpyDtoDAsync_v2(m + 256, m, 256, s));
    if (i % 50 != 0) continue;
    OK(cuMemcpyDtoHAsync_v2(p, m + 256, 256, s));
    OK(cuStreamSynchronize(s));
    CHECK(all_bytes(p, (unsigned char)i, 256));
  }
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m + 256, 199, 256));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
  OK(cuMemFreeHost(p));
}

RULE(streams_do_not_wait_for_each_other, "") {
  use(0);
  CUstream a = new_stream(), b = new_stream(), c = new_blocking_stream();
  CUdeviceptr m = new_memory(64);
  struct gate gate;
  close_gate(&gate, a);
  OK(cuMemsetD8Async(m, 1, 64, b));
  OK(cuStreamSynchronize(b));
  OK(cuMemsetD8Async(m, 2, 64, c));
  OK(cuStreamSynchronize(c));
  STAYS_PENDING(cuStreamQuery(a));
  open_gate(&gate);
  OK(cuStreamSynchronize(a));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuStreamDestroy_v2(c));
  OK(cuMemFree_v2(m));
}

RULE(synchronizing_a_stream_waits, "") {
  use(0);
  CUstream s = new_stream();
  atomic_bool done;
  queue_late(&done, s);
  OK(cuStreamSynchronize(s));
  CHECK(done);
  queue_late(&done, NULL);
  OK(cuStreamSynchronize(NULL));
  CHECK(done);
  OK(cuStreamDestroy_v2(s));
}

RULE(an_empty_stream_is_ready, "") {
  use(0);
  CUstream s = new_stream();
  OK(cuStreamQuery(s));
  OK(cuStreamSynchronize(s));
  OK(cuStreamQuery(NULL));
  OK(cuStreamQuery(CU_STREAM_LEGACY));
  OK(cuStreamQuery(CU_STREAM_PER_THREAD));
  OK(cuStreamDestroy_v2(s));
}

/* Work on `second`, queued behind a closed gate on `first`: is it held back? */
static bool holds_back(CUstream first, CUstream second) {
  struct gate gate;
  CUdeviceptr m = new_memory(64);
  close_gate(&gate, first);
  OK(cuMemsetD8Async(m, 1, 64, second));
  bool held = true;
  CUevent e = new_event();
  OK(cuEventRecord(e, second));
  for (int i = 0; i < 20 && held; i++, nap(1)) held = cuEventQuery(e) == CUDA_ERROR_NOT_READY;
  open_gate(&gate);
  OK(cuCtxSynchronize());
  OK(cuEventDestroy_v2(e));
  OK(cuMemFree_v2(m));
  return held;
}

/* Work on `second` is done though there is a closed gate on `first`: a wait that
 * never ended would fail the rule. */
static void does_not_hold_back(CUstream first, CUstream second) {
  struct gate gate;
  CUdeviceptr m = new_memory(64);
  CUevent e = new_event();
  close_gate(&gate, first);
  OK(cuMemsetD8Async(m, 1, 64, second));
  OK(cuEventRecord(e, second));
  OK(cuEventSynchronize(e));
  open_gate(&gate);
  OK(cuCtxSynchronize());
  OK(cuEventDestroy_v2(e));
  OK(cuMemFree_v2(m));
}

RULE(the_legacy_stream_waits_for_blocking_streams, "") {
  use(0);
  CUstream s = new_blocking_stream();
  CHECK(holds_back(s, NULL));
  CHECK(holds_back(s, CU_STREAM_LEGACY));
  OK(cuStreamDestroy_v2(s));
}

RULE(blocking_streams_wait_for_the_legacy_stream, "") {
  use(0);
  CUstream s = new_blocking_stream();
  CHECK(holds_back(NULL, s));
  CHECK(holds_back(CU_STREAM_LEGACY, s));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_blocking_stream_made_later_waits_for_the_legacy_stream, "") {
  use(0);
  struct gate gate;
  CUdeviceptr m = new_memory(64);
  close_gate(&gate, NULL);
  CUstream s = new_blocking_stream();
  OK(cuMemsetD8Async(m, 1, 64, s));
  STAYS_PENDING(cuStreamQuery(s));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

RULE(non_blocking_streams_and_the_legacy_stream_ignore_each_other, "") {
  use(0);
  CUstream s = new_stream();
  does_not_hold_back(s, NULL);
  does_not_hold_back(NULL, s);
  OK(cuStreamDestroy_v2(s));
}

RULE(the_legacy_stream_orders_blocking_streams_through_itself, "") {
  use(0);
  CUstream a = new_blocking_stream(), b = new_blocking_stream();
  struct gate gate;
  CUdeviceptr m = new_memory(64);
  close_gate(&gate, a);
  OK(cuMemsetD8Async(m, 1, 64, NULL)); /* waits for a */
  OK(cuMemsetD8Async(m, 2, 64, b));    /* waits for that */
  STAYS_PENDING(cuStreamQuery(b));
  open_gate(&gate);
  OK(cuStreamSynchronize(b));
  CHECK(is_filled(m, 2, 64));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuMemFree_v2(m));
}

RULE(the_legacy_stream_has_two_names, "") {
  use(0);
  struct gate gate;
  close_gate(&gate, NULL);
  STAYS_PENDING(cuStreamQuery(CU_STREAM_LEGACY));
  open_gate(&gate);
  OK(cuStreamSynchronize(CU_STREAM_LEGACY));
  OK(cuStreamQuery(NULL));
}

RULE(the_per_thread_stream_is_a_blocking_stream, "") {
  use(0);
  CHECK(holds_back(NULL, CU_STREAM_PER_THREAD));
  CHECK(holds_back(CU_STREAM_PER_THREAD, NULL));
}

RULE(the_per_thread_stream_waits_for_no_other, "") {
  use(0);
  CUstream s = new_blocking_stream();
  does_not_hold_back(s, CU_STREAM_PER_THREAD);
  does_not_hold_back(CU_STREAM_PER_THREAD, s);
  OK(cuStreamDestroy_v2(s));
}

static void per_thread_is_ready(void *context) {
  OK(cuCtxSetCurrent(context));
  OK(cuStreamQuery(CU_STREAM_PER_THREAD));
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
  CUevent e = new_event();
  OK(cuEventRecord(e, CU_STREAM_PER_THREAD));
  OK(cuEventSynchronize(e));
  OK(cuEventDestroy_v2(e));
}

RULE(every_thread_has_a_per_thread_stream_of_its_own, "") {
  CUcontext context = use(0);
  struct gate gate;
  close_gate(&gate, CU_STREAM_PER_THREAD);
  on_thread(per_thread_is_ready, context);
  STAYS_PENDING(cuStreamQuery(CU_STREAM_PER_THREAD));
  open_gate(&gate);
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

struct leaving {
  CUcontext context;
  atomic_bool done;
};

static void queue_and_leave(void *data) {
  struct leaving *l = data;
  OK(cuCtxSetCurrent(l->context));
  queue_late(&l->done, CU_STREAM_PER_THREAD);
}

RULE(the_work_of_a_thread_that_ended_is_done, "") {
  struct leaving l = {use(0), false};
  on_thread(queue_and_leave, &l);
  OK(cuCtxSynchronize());
  CHECK(l.done);
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

RULE(streams_of_threads_that_ended_go_too, "") {
  CUcontext context = use(0);
  int before = threads_of_this_process();
  for (int i = 0; i < 100; i++) on_thread(use_per_thread_stream, context);
  wait_for_threads_to_end(before + 1);
}

RULE(destroyed_streams_go, "") {
  use(0);
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

RULE(ptsz_names_mean_the_per_thread_stream, "") {
  use(0);
  struct gate gate;
  close_gate(&gate, CU_STREAM_PER_THREAD);
  STAYS_PENDING(cuStreamQuery_ptsz(NULL));
  open_gate(&gate);
  OK(cuStreamSynchronize_ptsz(NULL));
  OK(cuStreamQuery(CU_STREAM_PER_THREAD));

  CUstream s = new_blocking_stream();
  CUdeviceptr m = new_memory(64);
  CUevent e = new_event();
  close_gate(&gate, s); /* would hold back the legacy stream */
  OK(cuMemsetD8Async_ptsz(m, 1, 64, NULL));
  OK(cuEventRecord_ptsz(e, NULL));
  OK(cuEventSynchronize(e));
  open_gate(&gate);
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
  OK(cuEventDestroy_v2(e));
}

RULE(ptds_names_mean_the_per_thread_stream, "") {
  use(0);
  CUstream s = new_blocking_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char bytes[64] = {7};
  struct gate gate;
  close_gate(&gate, s);
  OK(cuMemcpyHtoD_v2_ptds(m, bytes, 64));
  OK(cuMemsetD8_v2_ptds(m, 9, 63));
  OK(cuMemcpyDtoH_v2_ptds(bytes, m, 64)); /* on the legacy stream this would wait for the gate */
  CHECK(all_bytes(bytes, 9, 63) && bytes[63] == 0);
  open_gate(&gate);
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

RULE(a_busy_stream_may_be_destroyed_and_does_its_work, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  CUevent e = new_event();
  struct gate gate;
  close_gate(&gate, s);
  OK(cuMemsetD8Async(m, 6, 64, s));
  OK(cuEventRecord(e, s));
  OK(cuStreamDestroy_v2(s)); /* returns, though the gate is closed */
  IS(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
  STAYS_PENDING(cuEventQuery(e));
  open_gate(&gate);
  OK(cuEventSynchronize(e));
  CHECK(is_filled(m, 6, 64));
  OK(cuEventDestroy_v2(e));
  OK(cuMemFree_v2(m));
}

RULE(synchronizing_a_context_waits_for_destroyed_streams, "") {
  use(0);
  CUstream s = new_stream();
  atomic_bool done;
  queue_late(&done, s);
  OK(cuStreamDestroy_v2(s));
  OK(cuCtxSynchronize());
  CHECK(done);
}

RULE(what_is_no_stream_is_refused, "") {
  use(0);
  CUstream s = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(64);
  int garbage[64] = {0};
  CUstream wrong[] = {(CUstream)(void *)garbage, (CUstream)(void *)e, s, (CUstream)3};
  OK(cuStreamDestroy_v2(s));
  for (int i = 0; i < 4; i++) {
    IS(cuStreamQuery(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuStreamSynchronize(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuStreamWaitEvent(wrong[i], e, 0), CUDA_ERROR_INVALID_HANDLE);
    IS(cuEventRecord(e, wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuMemsetD8Async(m, 0, 64, wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuStreamDestroy_v2(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
  }
  OK(cuEventDestroy_v2(e));
  OK(cuMemFree_v2(m));
}

RULE(the_default_streams_cannot_be_destroyed, "") {
  use(0);
  CHECK(cuStreamDestroy_v2(NULL) != CUDA_SUCCESS);
  CHECK(cuStreamDestroy_v2(CU_STREAM_LEGACY) != CUDA_SUCCESS);
  CHECK(cuStreamDestroy_v2(CU_STREAM_PER_THREAD) != CUDA_SUCCESS);
  OK(cuStreamQuery(NULL));
}

RULE(streams_know_what_they_are, "") {
  CUcontext context = use(0), of = NULL;
  CUstream s, blocking = new_blocking_stream();
  unsigned flags = 9;
  int least, greatest, priority = 9;
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, greatest));
  OK(cuStreamGetFlags(s, &flags));
  SAME(flags, CU_STREAM_NON_BLOCKING);
  OK(cuStreamGetFlags(blocking, &flags));
  SAME(flags, CU_STREAM_DEFAULT);
  OK(cuStreamGetPriority(s, &priority));
  SAME(priority, greatest);
  OK(cuStreamGetPriority(blocking, &priority));
  SAME(priority, 0);
  OK(cuStreamGetCtx(s, &of));
  CHECK(of == context);
  OK(cuStreamGetCtx(NULL, &of));
  CHECK(of == context);
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamCreateWithPriority(&s, 0, greatest - 100)); /* clamped */
  OK(cuStreamGetPriority(s, &priority));
  SAME(priority, greatest);
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(blocking));
  IS(cuStreamCreate(&s, 0x10), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_stream_may_be_used_while_another_device_is_current, "devices=2") {
  CUcontext a = use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  use(1);
  OK(cuMemsetD8Async(m, 4, 64, s));
  OK(cuStreamSynchronize(s));
  OK(cuStreamQuery(s));
  CHECK(is_filled(m, 4, 64));
  OK(cuStreamDestroy_v2(s));
  OK(cuCtxSetCurrent(a));
  OK(cuMemFree_v2(m));
}

RULE(a_host_function_holds_its_stream_back, "") {
  use(0);
  CUstream s = new_stream();
  CHECK(holds_back(s, s));
  OK(cuStreamDestroy_v2(s));
}
