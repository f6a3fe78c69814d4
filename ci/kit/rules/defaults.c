/* The default streams: the legacy stream and those of threads. */
#define GROUP "default streams"
#include "rules.h"

/* Work on second, queued behind a closed gate on first, is held back. */
static void holds_back(CUstream first, CUstream second, const char* what) {
  CUdeviceptr m = new_memory(64);
  CUevent e = new_event();
  close_gate(first);
  OK(cuMemsetD8Async(m, 1, 64, second));
  OK(cuEventRecord(e, second));
  bool held = true;
  for (int i = 0; i < 20 && held; i++, nap(1)) held = cuEventQuery(e) == CUDA_ERROR_NOT_READY;
  if (!held) differs("%s is not held back", what);
  open_gate();
  OK(cuCtxSynchronize());
  OK(cuEventDestroy_v2(e));
  OK(cuMemFree_v2(m));
}

static void does_not_hold_back(CUstream first, CUstream second) {
  CUdeviceptr m = new_memory(64);
  CUevent e = new_event();
  close_gate(first);
  OK(cuMemsetD8Async(m, 1, 64, second));
  OK(cuEventRecord(e, second));
  DOES_NOT_WAIT(cuEventSynchronize(e));
  open_gate();
  OK(cuCtxSynchronize());
  OK(cuEventDestroy_v2(e));
  OK(cuMemFree_v2(m));
}

RULE(the_legacy_stream_waits_for_blocking_streams, MANUAL,
     "Work of the legacy stream comes after earlier work of blocking streams.") {
  holds_back(x, NULL, "stream 0");
  holds_back(x, CU_STREAM_LEGACY, "CU_STREAM_LEGACY");
}

RULE(blocking_streams_wait_for_the_legacy_stream, MANUAL,
     "Work of blocking streams comes after earlier work of the legacy stream.") {
  holds_back(NULL, x, "a blocking stream behind stream 0");
  holds_back(CU_STREAM_LEGACY, x, "a blocking stream behind CU_STREAM_LEGACY");
}

RULE(a_blocking_stream_made_later_waits_for_the_legacy_stream, MANUAL,
     "A blocking stream that is made while the legacy stream has work comes after it.") {
  close_gate(NULL);
  CUstream s = NULL;
  DOES_NOT_WAIT(cuStreamCreate(&s, CU_STREAM_DEFAULT));
  OK(cuMemsetD8Async(m, 1, 64, s));
  STAYS_PENDING(cuStreamQuery(s));
  open_gate();
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
}

RULE(non_blocking_streams_and_the_legacy_stream_ignore_each_other, MANUAL,
     "A stream of CU_STREAM_NON_BLOCKING is in no order with the legacy stream.") {
  does_not_hold_back(a, NULL);
  does_not_hold_back(NULL, a);
}

RULE(
    the_legacy_stream_orders_blocking_streams_through_itself, MANUAL,
    "Work of a blocking stream that is queued after work of the legacy stream comes after that of other blocking streams.") {
  close_gate(x);
  OK(cuMemsetD8Async(m, 1, 64, NULL)); /* waits for a */
  OK(cuMemsetD8Async(m, 2, 64, y));    /* waits for that */
  STAYS_PENDING(cuStreamQuery(y));
  open_gate();
  OK(cuStreamSynchronize(y));
  CHECK(is_filled(m, 2, 64));
}

RULE(the_legacy_stream_has_two_names, MANUAL, "Stream 0 and CU_STREAM_LEGACY are one stream.") {
  close_gate(NULL);
  STAYS_PENDING(cuStreamQuery(CU_STREAM_LEGACY));
  open_gate();
  IS(cuStreamSynchronize(CU_STREAM_LEGACY), CUDA_SUCCESS);
  IS(cuStreamQuery(NULL), CUDA_SUCCESS);
}

RULE(the_per_thread_stream_is_a_blocking_stream, MANUAL,
     "The per-thread default stream comes before and after the legacy stream as blocking streams do.") {
  holds_back(NULL, CU_STREAM_PER_THREAD, "the per-thread stream behind stream 0");
  holds_back(CU_STREAM_PER_THREAD, NULL, "stream 0 behind the per-thread stream");
}

RULE(the_per_thread_stream_waits_for_no_other, MANUAL,
     "The per-thread stream is in no order with other blocking streams.") {
  does_not_hold_back(x, CU_STREAM_PER_THREAD);
  does_not_hold_back(CU_STREAM_PER_THREAD, x);
}

static void per_thread_is_ready(void* context) {
  OK(cuCtxSetCurrent(context));
  IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  CUevent e = new_event();
  OK(cuEventRecord(e, CU_STREAM_PER_THREAD));
  DOES_NOT_WAIT(cuEventSynchronize(e));
  OK(cuEventDestroy_v2(e));
}

RULE(every_thread_has_a_per_thread_stream_of_its_own, MANUAL,
     "CU_STREAM_PER_THREAD is another stream in each thread.") {
  CUcontext context = use(0);
  close_gate(CU_STREAM_PER_THREAD);
  on_thread(per_thread_is_ready, context);
  STAYS_PENDING(cuStreamQuery(CU_STREAM_PER_THREAD));
}

static void queue_and_leave(void* context) {
  OK(cuCtxSetCurrent(context));
  close_gate(CU_STREAM_PER_THREAD);
}

RULE(the_work_of_a_thread_that_ended_is_waited_for, READING,
     "cuCtxSynchronize waits for work in the per-thread stream of a thread that has ended.", .alone = true) {
  on_thread(queue_and_leave, use(0));
  WAITS(cuCtxSynchronize());
}

RULE(ptsz_names_mean_the_per_thread_stream, MANUAL,
     "In functions whose name ends in _ptsz, stream 0 is the per-thread stream.") {
  close_gate(CU_STREAM_PER_THREAD);
  STAYS_PENDING(cuStreamQuery_ptsz(NULL));
  open_gate();
  IS(cuStreamSynchronize_ptsz(NULL), CUDA_SUCCESS);
  CUstream s = new_blocking_stream();
  CUdeviceptr m = new_memory(64);
  CUevent e = new_event();
  close_gate(s); /* holds back the legacy stream */
  OK(cuMemsetD8Async_ptsz(m, 1, 64, NULL));
  OK(cuEventRecord_ptsz(e, NULL));
  DOES_NOT_WAIT(cuEventSynchronize(e));
}

RULE(ptds_names_mean_the_per_thread_stream, MANUAL,
     "Functions whose name ends in _ptds work in the per-thread stream, and do not wait for blocking streams.") {
  unsigned char bytes[64] = {7};
  close_gate(x);
  DOES_NOT_WAIT(cuMemcpyHtoD_v2_ptds(m, bytes, 64));
  OK(cuMemsetD8_v2_ptds(m, 9, 63));
  DOES_NOT_WAIT(cuMemcpyDtoH_v2_ptds(bytes, m, 64));
  CHECK(all_bytes(bytes, 9, 63) && bytes[63] == 0);
}

RULE(an_event_on_the_legacy_stream_waits_for_blocking_streams, MANUAL,
     "An event that is recorded in the legacy stream completes after earlier work of blocking streams.") {
  close_gate(x);
  OK(cuEventRecord(e, NULL));
  STAYS_PENDING(cuEventQuery(e));
  open_gate();
  OK(cuEventSynchronize(e));
}

RULE(waiting_for_the_legacy_stream_waits_for_blocking_streams_behind_it, MANUAL,
     "cuStreamSynchronize of the legacy stream waits for work of it that itself waits for blocking streams.") {
  close_gate(x);
  OK(cuMemsetD8Async(m, 1, 64, NULL));
  WAITS(cuStreamSynchronize(NULL));
}
