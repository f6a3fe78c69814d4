/* Events: the work that a record covers, and the streams that a wait holds back. */
#include "order.h"

FILL_AND_COPY(a_wait_for_an_event, a, b) {
  OK(cuEventRecord(e, a));
  WAIT(cuStreamWaitEvent(b, e, 0));
}

FILL_AND_COPY(a_wait_for_the_wrong_event, a, b) {
  OK(cuEventRecord(e, a));
  OK(cuMemsetD8Async(o, 7, N, c));
  OK(cuEventRecord(f, c));
  OK(cuStreamWaitEvent(b, PICK(e, f), 0));
}

FILL_AND_COPY(a_wait_in_the_wrong_stream, a, b) {
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(PICK(b, c), e, 0));
}

/* Waiting for an event that was never recorded is waiting for nothing. */
FILL_AND_COPY(a_wait_before_the_record, a, b) {
  WRONG(cuStreamWaitEvent(b, e, 0));
  OK(cuEventRecord(e, a));
  RIGHT(cuStreamWaitEvent(b, e, 0));
}

PAIR(a_wait_after_the_work, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  RIGHT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  WRONG(cuStreamWaitEvent(b, e, 0));
  expect(n, 7);
}

PAIR(a_record_before_the_work, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  WRONG(cuEventRecord(e, a));
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

FILL_AND_COPY(a_record_in_the_wrong_stream, a, b) {
  OK(cuEventRecord(e, PICK(a, c)));
  OK(cuStreamWaitEvent(b, e, 0));
}

/* The wait is for the latest record at the time of the call. */
FILL_AND_COPY(recorded_again_elsewhere_before_the_wait, a, b) {
  OK(cuEventRecord(e, a));
  RIGHT(cuStreamWaitEvent(b, e, 0));
  OK(cuEventRecord(e, c));
  WRONG(cuStreamWaitEvent(b, e, 0));
}

/* Recording again does not prolong a wait that was there before. */
PAIR(a_wait_between_two_records, "cuMemsetD16Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  WRONG(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD16Async(m, 0x0808, N / 2, a));
  OK(cuEventRecord(e, a));
  RIGHT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 8);
}

PAIR(work_after_the_record_is_not_awaited, "cuMemsetD16Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  OK(cuMemsetD16Async(m, 0x0808, N / 2, a));
  OK(cuEventRecord(f, a));
  OK(cuStreamWaitEvent(b, PICK(f, e), 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 8);
}

FILL_AND_COPY(the_host_waits_for_an_event, a, b) {
  OK(cuEventRecord(e, a));
  WAIT(cuEventSynchronize(e));
}

PAIR(the_host_waits_for_an_earlier_event, "cuMemsetD16Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  OK(cuMemsetD16Async(m, 0x0808, N / 2, a));
  OK(cuEventRecord(f, a));
  OK(cuEventSynchronize(PICK(f, e)));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 8);
}

FILL_AND_COPY(the_host_waits_for_an_event_never_recorded, a, b) {
  OK(cuEventRecord(e, a));
  OK(cuEventSynchronize(PICK(e, f)));
}

FILL_AND_COPY(the_host_asks_an_event, a, b) {
  OK(cuEventRecord(e, a));
  WAIT(poll_event(e));
}

FILL_AND_COPY(the_host_asks_an_event_never_recorded, a, b) {
  OK(cuEventRecord(e, a));
  OK(poll_event(PICK(e, f)));
}

/* An elapsed time is known only once both events are complete. */
PAIR(elapsed_time_is_known, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUevent start = new_timed_event(), end = new_timed_event();
  OK(cuEventRecord(start, a));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(end, a));
  WAIT(poll_elapsed(start, end));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* Both are complete: that of the other stream is the one that counts here. */
PAIR(elapsed_time_between_two_streams, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUevent before = new_timed_event(), start = new_timed_event(), end = new_timed_event();
  OK(cuEventRecord(before, a));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(start, a));
  OK(cuEventRecord(end, b));
  OK(poll_elapsed(PICK(start, before), end));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
  expect(n, 7);
}

/* That the event is complete already makes the wait no less an order. */
FILL_AND_COPY(a_wait_for_a_completed_event, a, b) {
  OK(cuEventRecord(e, a));
  cudasim_drain();
  WAIT(cuStreamWaitEvent(b, e, 0));
}

/* The wait outlives the event. */
FILL_AND_COPY(an_event_is_destroyed_after_the_wait, a, b) {
  OK(cuEventRecord(e, a));
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuEventDestroy_v2(e));
}

/* A new event knows nothing of a destroyed one, whose place it may have. */
FILL_AND_COPY(an_event_in_the_place_of_a_destroyed_one, a, b) {
  OK(cuEventRecord(e, a));
  RIGHT(cuStreamWaitEvent(b, e, 0));
  OK(cuEventDestroy_v2(e));
  CUevent next = new_event();
  WRONG(cuStreamWaitEvent(b, next, 0));
}

/* The record covers the work that the recording stream itself waited for. */
FILL_AND_COPY(a_record_holds_what_its_stream_waited_for, a, c) {
  WRONG(cuEventRecord(e, b));
  OK(follow(b, a));
  RIGHT(cuEventRecord(e, b));
  OK(cuStreamWaitEvent(c, e, 0));
}

/* A record is ordered after the work that the host had waited for when it was queued. */
FILL_AND_COPY(a_record_holds_what_the_host_knew, a, b) {
  WAIT(cuStreamSynchronize(a));
  OK(cuEventRecord(e, b));
  OK(cuStreamWaitEvent(b, e, 0));
}

/* Holding an event back stands for a slow device: it orders nothing, and nor does firing it. */
PAIR(a_held_event_is_fired, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  OK(cudasim_event_hold(e));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cudasim_event_fire(e));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* An answer that it is not complete orders nothing. The event is held back, so that the
 * answer is the same in every run. */
PAIR(an_event_that_is_not_ready, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  OK(cudasim_event_hold(e));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
  OK(cudasim_event_fire(e));
  WAIT(poll_event(e));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(a_stream_that_is_not_ready, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  OK(cudasim_event_hold(e));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  IS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
  OK(cudasim_event_fire(e));
  WAIT(poll_stream(a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(an_elapsed_time_that_is_not_ready, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUevent start = new_timed_event(), end = new_timed_event();
  float milliseconds;
  OK(cudasim_event_hold(end));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(start, a));
  OK(cuEventRecord(end, a));
  IS(cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
  OK(cudasim_event_fire(end));
  WAIT(poll_elapsed(start, end));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

CORRECT(recorded_again_elsewhere_after_the_wait, "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  for (int i = 0; i < 3; i++) OK(cuEventRecord(e, c));
  OK(cuEventSynchronize(e));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

CORRECT(a_stream_waits_for_its_own_event, "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(follow(a, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 7);
}

CORRECT(one_event_in_turn_for_two_streams, "") {
  for (unsigned char i = 0; i < 8; i++) {
    CUstream now = i % 2 ? b : a, next = i % 2 ? a : b;
    OK(cuMemsetD8Async(m, i, N, now));
    OK(cuEventRecord(e, now));
    OK(cuStreamWaitEvent(next, e, 0));
  }
  expect(m, 7);
}

CORRECT(many_waits_for_one_completed_event, "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  OK(cuEventSynchronize(e));
  for (int i = 0; i < 4; i++) OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  OK(follow(a, b));
  OK(cuMemsetD8Async(m, 8, N, a));
  expect(n, 7);
}
