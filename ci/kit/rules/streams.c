/* Streams. */
#define GROUP "streams"
#include "rules.h"

RULE(queued_work_is_done_later, MANUAL,
     "Asynchronous calls return before their work is done; a query is NOT_READY then.") {
  memset(p, 1, 64);
  close_gate(a);
  DOES_NOT_WAIT(cuMemsetD8Async(m, 2, 64, a));
  DOES_NOT_WAIT(cuMemcpyDtoHAsync_v2(p, m, 64, a));
  STAYS_PENDING(cuStreamQuery(a));
  STAYS(p[0] != 2);
  open_gate();
  IS(cuStreamSynchronize(a), CUDA_SUCCESS);
  IS(cuStreamQuery(a), CUDA_SUCCESS);
  CHECK(all_bytes(p, 2, 64));
}

RULE(work_of_a_stream_is_done_in_order, MANUAL, "Work of one stream is done in the order of the calls.") {
  CUdeviceptr m = new_memory(512);
  unsigned char* p = new_pinned(512);
  for (int i = 0; i < 200; i++) {
    OK(cuMemsetD8Async(m, (unsigned char)i, 256, a));
    OK(cuMemcpyDtoDAsync_v2(m + 256, m, 256, a));
    if (i % 50 != 0) continue;
    OK(cuMemcpyDtoHAsync_v2(p, m + 256, 256, a));
    OK(cuStreamSynchronize(a));
    CHECK(all_bytes(p, (unsigned char)i, 256));
  }
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m + 256, 199, 256));
  OK(cuStreamDestroy_v2(a));
}

RULE(streams_do_not_wait_for_each_other, MANUAL, "Work of a stream is not held back by another stream.") {
  close_gate(a);
  OK(cuMemsetD8Async(m, 1, 64, b));
  DOES_NOT_WAIT(cuStreamSynchronize(b));
  OK(cuMemsetD8Async(m, 2, 64, x));
  DOES_NOT_WAIT(cuStreamSynchronize(x));
  STAYS_PENDING(cuStreamQuery(a));
}

RULE(synchronizing_a_stream_waits, MANUAL, "cuStreamSynchronize waits for all work of the stream.") {
  close_gate(a);
  WAITS(cuStreamSynchronize(a));
}

RULE(synchronizing_the_default_stream_waits, MANUAL, "cuStreamSynchronize of stream 0 waits for its work.") {
  close_gate(NULL);
  WAITS(cuStreamSynchronize(NULL));
}

RULE(an_empty_stream_is_ready, MANUAL, "The query of a stream without work succeeds, of the default streams as well.") {
  IS(cuStreamQuery(a), CUDA_SUCCESS);
  IS(cuStreamSynchronize(a), CUDA_SUCCESS);
  IS(cuStreamQuery(NULL), CUDA_SUCCESS);
  IS(cuStreamQuery(CU_STREAM_LEGACY), CUDA_SUCCESS);
  IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
}

RULE(a_busy_stream_may_be_destroyed_and_does_its_work, MANUAL,
     "cuStreamDestroy of a stream with pending work returns at once, and the work is done.") {
  close_gate(a);
  OK(cuMemsetD8Async(m, 6, 64, a));
  OK(cuEventRecord(e, a));
  DOES_NOT_WAIT(cuStreamDestroy_v2(a));
  STAYS_PENDING(cuEventQuery(e));
  open_gate();
  OK(cuEventSynchronize(e));
  CHECK(is_filled(m, 6, 64));
}

RULE(synchronizing_a_context_waits_for_all_its_streams, MANUAL,
     "cuCtxSynchronize waits for non-blocking streams of the context.") {
  close_gate(a);
  WAITS(cuCtxSynchronize());
}

RULE(synchronizing_a_context_waits_for_destroyed_streams, READING,
     "cuCtxSynchronize waits for pending work of a stream that was destroyed.") {
  close_gate(a);
  OK(cuStreamDestroy_v2(a));
  WAITS(cuCtxSynchronize());
}

RULE(a_handle_that_is_no_stream_is_refused, READING, "Calls with the stream 3 return INVALID_HANDLE.", .alone = true) {
  CUstream wrong = (CUstream)3;
  IS(cuStreamQuery(wrong), CUDA_ERROR_INVALID_HANDLE);
  IS(cuStreamSynchronize(wrong), CUDA_ERROR_INVALID_HANDLE);
  IS(cuStreamWaitEvent(wrong, e, 0), CUDA_ERROR_INVALID_HANDLE);
  IS(cuEventRecord(e, wrong), CUDA_ERROR_INVALID_HANDLE);
  IS(cuMemsetD8Async(m, 0, 64, wrong), CUDA_ERROR_INVALID_HANDLE);
  IS(cuStreamDestroy_v2(wrong), CUDA_ERROR_INVALID_HANDLE);
}

RULE(a_destroyed_stream_is_refused, READING, "The query of a destroyed stream returns INVALID_HANDLE.", .alone = true) {
  OK(cuStreamDestroy_v2(a));
  IS(cuStreamQuery(a), CUDA_ERROR_INVALID_HANDLE);
}

RULE(a_destroyed_stream_takes_no_work, READING, "Work queued in a destroyed stream returns INVALID_HANDLE.",
     .alone = true) {
  OK(cuStreamDestroy_v2(a));
  IS(cuMemsetD8Async(m, 0, 64, a), CUDA_ERROR_INVALID_HANDLE);
}

RULE(a_destroyed_stream_records_nothing, READING, "A record in a destroyed stream returns INVALID_HANDLE.",
     .alone = true) {
  OK(cuStreamDestroy_v2(a));
  IS(cuEventRecord(e, a), CUDA_ERROR_INVALID_HANDLE);
}

RULE(an_event_is_no_stream, READING, "The query of a stream that is the handle of an event returns INVALID_HANDLE.",
     .alone = true) {
  IS(cuStreamQuery((CUstream)(void*)e), CUDA_ERROR_INVALID_HANDLE);
}

RULE(the_default_streams_cannot_be_destroyed, READING, "cuStreamDestroy of a default stream is an error.",
     .alone = true) {
  REFUSED(cuStreamDestroy_v2(NULL));
  REFUSED(cuStreamDestroy_v2(CU_STREAM_LEGACY));
  REFUSED(cuStreamDestroy_v2(CU_STREAM_PER_THREAD));
  IS(cuStreamQuery(NULL), CUDA_SUCCESS);
}

RULE(streams_know_their_flags_and_priority, MANUAL, "Flags, priority and context of a stream can be asked for.") {
  CUcontext context = use(0), of = NULL;
  CUstream s;
  unsigned flags = 9;
  int least = 9, greatest = 9, priority = 9;
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, greatest));
  OK(cuStreamGetFlags(s, &flags));
  SAME(flags, CU_STREAM_NON_BLOCKING);
  OK(cuStreamGetFlags(x, &flags));
  SAME(flags, CU_STREAM_DEFAULT);
  OK(cuStreamGetPriority(s, &priority));
  SAME(priority, greatest);
  OK(cuStreamGetPriority(x, &priority));
  SAME(priority, 0);
  OK(cuStreamGetCtx(s, &of));
  CHECK(of == context);
  OK(cuStreamGetCtx(NULL, &of));
  CHECK(of == context);
  OK(cuStreamDestroy_v2(s));
}

RULE(priorities_are_clamped, MANUAL, "A priority outside of the range is lowered or raised to its end.") {
  CUstream s;
  int least = 9, greatest = 9, priority = 9;
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  CHECK(least == 0 && least >= greatest);
  OK(cuStreamCreateWithPriority(&s, 0, greatest - 100));
  OK(cuStreamGetPriority(s, &priority));
  SAME(priority, greatest);
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamCreateWithPriority(&s, 0, least + 100));
  OK(cuStreamGetPriority(s, &priority));
  SAME(priority, least);
  OK(cuStreamDestroy_v2(s));
  IS(cuCtxGetStreamPriorityRange(NULL, NULL), CUDA_SUCCESS);
}

RULE(stream_flags_are_checked, MANUAL, "Unknown flags of cuStreamCreate are INVALID_VALUE.") {
  CUstream s;
  IS(cuStreamCreate(&s, 0x10), CUDA_ERROR_INVALID_VALUE);
  IS(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

RULE(streams_have_different_ids, MANUAL, "cuStreamGetId differs between streams of a process.") {
  unsigned long long first = 0, second = 0, again = 1;
  OK(cuStreamGetId(a, &first));
  OK(cuStreamGetId(b, &second));
  OK(cuStreamGetId(a, &again));
  CHECK(first != second);
  CHECK(first == again);
}

RULE(a_stream_may_be_used_while_another_device_is_current, READING,
     "Fills, queries, waits and records of a stream need not have its context current.", .needs = TWO) {
  CUcontext a = use(0);
  use(1);
  IS(cuMemsetD8Async(m, 4, 64, b), CUDA_SUCCESS);
  IS(cuStreamSynchronize(b), CUDA_SUCCESS);
  IS(cuStreamQuery(b), CUDA_SUCCESS);
  IS(cuStreamDestroy_v2(b), CUDA_SUCCESS);
  OK(cuCtxSetCurrent(a));
  CHECK(is_filled(m, 4, 64));
}

RULE(synchronizing_a_context_waits_for_no_other, MANUAL, "cuCtxSynchronize waits for the current context alone.",
     .needs = TWO) {
  close_gate(b);
  use(1);
  DOES_NOT_WAIT(cuCtxSynchronize());
}

RULE(a_stream_knows_its_device, MANUAL, "cuStreamGetDevice answers with the device of the stream.", .needs = TWO) {
  use(1);
  CUstream s = new_stream();
  CUdevice device = -1;
  OK(cuCtxSetCurrent(NULL));
  OK(cuStreamGetDevice(s, &device));
  SAME(device, 1);
  IS(cuStreamGetDevice(NULL, &device), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(a_stream_of_a_context_has_no_green_context, MANUAL,
     "cuStreamGetCtx_v2 answers with the context of the stream, and NULL for the green one.") {
  CUcontext context = use(0), of = NULL;
  void* green = &of;
  OK(cuCtxSetCurrent(NULL));
  IS(cuStreamGetCtx_v2(a, &of, &green), CUDA_SUCCESS);
  CHECK(of == context && green == NULL);
}
