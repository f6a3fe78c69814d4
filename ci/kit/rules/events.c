/* Events. */
#define GROUP "events"
#include "rules.h"

RULE(an_event_never_recorded_is_complete, MANUAL,
     "A query of an event that was never recorded, and waits for it by the host and by a stream, succeed at once.") {
  IS(cuEventQuery(e), CUDA_SUCCESS);
  IS(cuEventSynchronize(e), CUDA_SUCCESS);
  IS(cuStreamWaitEvent(a, e, 0), CUDA_SUCCESS);
  IS(cuStreamSynchronize(a), CUDA_SUCCESS);
}

RULE(an_event_is_pending_until_its_stream_gets_there, MANUAL,
     "The query of an event is NOT_READY while work before its record is pending, and success after it.") {
  close_gate(a);
  OK(cuEventRecord(e, a));
  STAYS_PENDING(cuEventQuery(e));
  open_gate();
  IS(cuEventSynchronize(e), CUDA_SUCCESS);
  IS(cuEventQuery(e), CUDA_SUCCESS);
}

RULE(recording_an_event_does_not_wait, MANUAL, "cuEventRecord returns while work of the stream is pending.") {
  close_gate(a);
  DOES_NOT_WAIT(cuEventRecord(e, a));
}

RULE(synchronizing_an_event_waits, MANUAL, "cuEventSynchronize returns when the work before the record is done.") {
  close_gate(a);
  OK(cuEventRecord(e, a));
  WAITS(cuEventSynchronize(e));
}

RULE(a_blocking_sync_event_waits_too, MANUAL,
     "cuEventSynchronize waits for an event of CU_EVENT_BLOCKING_SYNC as well.") {
  CUevent e;
  OK(cuEventCreate(&e, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
  close_gate(a);
  OK(cuEventRecord(e, a));
  WAITS(cuEventSynchronize(e));
  OK(cuEventDestroy_v2(e));
}

RULE(an_event_is_not_held_back_by_later_work, MANUAL,
     "An event completes with the work before its record, whatever is queued after it.") {
  OK(cuEventRecord(e, a));
  close_gate(a);
  DOES_NOT_WAIT(cuEventSynchronize(e));
  STAYS_PENDING(cuStreamQuery(a));
}

RULE(a_stream_waits_for_an_event_and_the_host_does_not, MANUAL,
     "cuStreamWaitEvent returns at once, and later work of the stream comes after the event.") {
  fill(m, 1, 64);
  close_gate(a);
  OK(cuMemsetD8Async(m, 2, 64, a));
  OK(cuEventRecord(e, a));
  DOES_NOT_WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD8Async(m, 3, 64, b));
  STAYS_PENDING(cuStreamQuery(b));
  open_gate();
  OK(cuStreamSynchronize(b));
  CHECK(is_filled(m, 3, 64));
}

RULE(a_stream_waits_only_with_work_queued_after, MANUAL,
     "A wait in a stream holds back later work of it, not earlier.") {
  close_gate(a);
  OK(cuEventRecord(e, a));
  OK(cuEventRecord(f, b));
  OK(cuStreamWaitEvent(b, e, 0));
  DOES_NOT_WAIT(cuEventSynchronize(f));
}

RULE(recording_again_does_not_end_earlier_waits, MANUAL,
     "A wait is for the record of the time of the call: a later record that completes does not end it.") {
  close_gate(a);
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuEventRecord(e, c));
  DOES_NOT_WAIT(cuEventSynchronize(e));
  STAYS_PENDING(cuStreamQuery(b));
}

RULE(recording_again_does_not_prolong_earlier_waits, MANUAL,
     "A wait is for the record of the time of the call: a later record that is pending does not prolong it.") {
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  close_gate(c);
  OK(cuEventRecord(e, c));
  DOES_NOT_WAIT(cuStreamSynchronize(b));
  STAYS_PENDING(cuEventQuery(e));
  open_gate();
  IS(cuEventSynchronize(e), CUDA_SUCCESS);
}

RULE(a_wait_takes_the_latest_record, MANUAL, "Query and waits are for the latest record of the event alone.") {
  close_gate(a);
  OK(cuEventRecord(e, a));
  OK(cuEventRecord(e, c));
  OK(cuStreamWaitEvent(b, e, 0));
  DOES_NOT_WAIT(cuStreamSynchronize(b));
  DOES_NOT_WAIT(cuEventSynchronize(e));
  open_gate();
  OK(cuStreamSynchronize(a));
  IS(cuEventQuery(e), CUDA_SUCCESS);
}

RULE(a_wait_before_the_first_record_does_nothing, MANUAL,
     "A wait for an event that is recorded later holds nothing back.") {
  OK(cuStreamWaitEvent(b, e, 0));
  close_gate(a);
  OK(cuEventRecord(e, a));
  DOES_NOT_WAIT(cuStreamSynchronize(b));
}

RULE(a_stream_that_waits_for_its_own_event_goes_on, MANUAL, "A stream may wait for an event that was recorded in it.") {
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(a, e, 0));
  DOES_NOT_WAIT(cuStreamSynchronize(a));
}

RULE(a_pending_event_may_be_destroyed, MANUAL,
     "cuEventDestroy of a pending event returns at once, and streams that wait for it still do.") {
  close_gate(a);
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  DOES_NOT_WAIT(cuEventDestroy_v2(e));
  STAYS_PENDING(cuStreamQuery(b));
}

RULE(an_event_outlives_the_stream_it_was_recorded_in, MANUAL,
     "An event stays pending after its stream was destroyed, until the stream's work is done.") {
  close_gate(a);
  OK(cuEventRecord(e, a));
  DOES_NOT_WAIT(cuStreamDestroy_v2(a));
  STAYS_PENDING(cuEventQuery(e));
  open_gate();
  IS(cuEventSynchronize(e), CUDA_SUCCESS);
}

RULE(null_is_no_event, READING, "Calls with a null event return INVALID_HANDLE.", .alone = true) {
  IS(cuEventQuery(NULL), CUDA_ERROR_INVALID_HANDLE);
  IS(cuEventSynchronize(NULL), CUDA_ERROR_INVALID_HANDLE);
  IS(cuEventRecord(NULL, a), CUDA_ERROR_INVALID_HANDLE);
  IS(cuStreamWaitEvent(a, NULL, 0), CUDA_ERROR_INVALID_HANDLE);
  IS(cuEventDestroy_v2(NULL), CUDA_ERROR_INVALID_HANDLE);
}

RULE(a_destroyed_event_is_refused, READING, "The query of a destroyed event returns INVALID_HANDLE.",
     .driver = "crash") {
  OK(cuEventDestroy_v2(e));
  IS(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE);
  IS(cuEventSynchronize(e), CUDA_ERROR_INVALID_HANDLE);
}

RULE(a_destroyed_event_is_not_recorded, READING, "The record of a destroyed event returns INVALID_HANDLE.",
     .driver = "crash") {
  OK(cuEventDestroy_v2(e));
  IS(cuEventRecord(e, a), CUDA_ERROR_INVALID_HANDLE);
}

RULE(a_destroyed_event_is_not_waited_for, READING, "The wait of a stream for a destroyed event returns INVALID_HANDLE.",
     .driver = "crash") {
  OK(cuEventDestroy_v2(e));
  IS(cuStreamWaitEvent(a, e, 0), CUDA_ERROR_INVALID_HANDLE);
}

RULE(a_destroyed_event_is_not_destroyed_again, READING, "The second cuEventDestroy returns INVALID_HANDLE.",
     .driver = "crash") {
  OK(cuEventDestroy_v2(e));
  IS(cuEventDestroy_v2(e), CUDA_ERROR_INVALID_HANDLE);
}

RULE(a_stream_is_no_event, READING, "The query of an event that is the handle of a stream returns INVALID_HANDLE.",
     .driver = "read the stream as an event") {
  IS(cuEventQuery((CUevent)(void*)a), CUDA_ERROR_INVALID_HANDLE);
}

RULE(event_flags_are_checked, MANUAL,
     "Unknown flags, and CU_EVENT_INTERPROCESS without DISABLE_TIMING, are INVALID_VALUE.") {
  CUevent e;
  IS(cuEventCreate(&e, 0x80), CUDA_ERROR_INVALID_VALUE);
  IS(cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
  IS(cuEventCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

RULE(wait_flags_are_checked, MANUAL, "Unknown flags of cuStreamWaitEvent are INVALID_VALUE.") {
  IS(cuStreamWaitEvent(a, e, 0x40), CUDA_ERROR_INVALID_VALUE);
}

RULE(external_flags_are_for_captures, SEEN,
     "Records and waits with the flag EXTERNAL are ILLEGAL_STATE in a stream that does not capture.") {
  IS(cuEventRecordWithFlags(e, a, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_ILLEGAL_STATE);
  IS(cuStreamWaitEvent(a, e, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_ILLEGAL_STATE);
}

RULE(elapsed_time_is_measured, MANUAL, "The time between two records includes the work between them.") {
  CUevent a, b;
  float ms = -1;
  OK(cuEventCreate(&a, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&b, CU_EVENT_DEFAULT));
  OK(cuEventRecord(a, c));
  OK(cuEventSynchronize(a));
  close_gate(c);
  OK(cuEventRecord(b, c));
  nap(60);
  open_gate();
  OK(cuEventSynchronize(b));
  IS(cuEventElapsedTime(&ms, a, b), CUDA_SUCCESS);
  CHECK(ms >= 50);
  CHECK(ms < 20000);
  OK(cuEventDestroy_v2(a));
  OK(cuEventDestroy_v2(b));
}

RULE(elapsed_time_needs_two_records, MANUAL,
     "cuEventElapsedTime is INVALID_HANDLE if an event was not recorded, and NOT_READY if one is pending.") {
  CUevent a, b;
  float ms;
  OK(cuEventCreate(&a, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&b, CU_EVENT_DEFAULT));
  OK(cuEventRecord(a, c));
  OK(cuStreamSynchronize(c));
  IS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
  close_gate(c);
  OK(cuEventRecord(b, c));
  IS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
  open_gate();
  OK(cuEventSynchronize(b));
  IS(cuEventElapsedTime(&ms, a, b), CUDA_SUCCESS);
  OK(cuEventDestroy_v2(a));
  OK(cuEventDestroy_v2(b));
}

RULE(elapsed_time_needs_events_with_timing, MANUAL,
     "cuEventElapsedTime is INVALID_HANDLE if an event was made with CU_EVENT_DISABLE_TIMING.") {
  CUevent a;
  float ms;
  OK(cuEventCreate(&a, CU_EVENT_DEFAULT));
  OK(cuEventRecord(a, b));
  OK(cuEventRecord(e, b));
  OK(cuStreamSynchronize(b));
  IS(cuEventElapsedTime(&ms, a, e), CUDA_ERROR_INVALID_HANDLE);
  OK(cuEventDestroy_v2(a));
}

RULE(an_event_is_recorded_in_its_own_context_only, MANUAL,
     "cuEventRecord is INVALID_HANDLE if event and stream are of different contexts.", .needs = TWO) {
  CUcontext a = use(0);
  use(1);
  CUstream s = new_stream();
  IS(cuEventRecord(e, s), CUDA_ERROR_INVALID_HANDLE);
  OK(cuCtxSetCurrent(a));
  IS(cuEventRecord(e, s), CUDA_ERROR_INVALID_HANDLE);
}

RULE(a_stream_waits_for_an_event_of_another_device, MANUAL,
     "cuStreamWaitEvent takes an event of another context or device.", .needs = TWO) {
  close_gate(a);
  OK(cuEventRecord(e, a));
  use(1);
  CUstream b = new_stream();
  OK(cuStreamWaitEvent(b, e, 0));
  STAYS_PENDING(cuStreamQuery(b));
  STAYS_PENDING(cuEventQuery(e)); /* of device 0, while device 1 is current */
  open_gate();
  IS(cuStreamSynchronize(b), CUDA_SUCCESS);
  IS(cuEventSynchronize(e), CUDA_SUCCESS);
}
