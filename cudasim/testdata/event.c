/* Events. */
#include "rules.h"

/* An event is never waited for here with two streams held back at once: host
 * functions of different streams may be run one after the other. */

RULE(an_event_never_recorded_is_complete, "") {
  use(0);
  CUevent e = new_event();
  CUstream s = new_stream();
  OK(cuEventQuery(e));
  OK(cuEventSynchronize(e));
  OK(cuStreamWaitEvent(s, e, 0));
  OK(cuStreamSynchronize(s));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(an_event_is_complete_when_its_stream_got_there, "") {
  use(0);
  CUevent e = new_event();
  CUstream s = new_stream();
  struct gate gate;
  close_gate(&gate, s);
  OK(cuEventRecord(e, s));
  STAYS_PENDING(cuEventQuery(e));
  open_gate(&gate);
  OK(cuEventSynchronize(e));
  OK(cuEventQuery(e));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(synchronizing_an_event_waits, "") {
  use(0);
  CUevent e = new_event();
  CUstream s = new_stream();
  atomic_bool done;
  queue_late(&done, s);
  OK(cuEventRecord(e, s));
  OK(cuEventSynchronize(e));
  CHECK(done);
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(an_event_is_not_held_back_by_later_work, "") {
  use(0);
  CUevent e = new_event();
  CUstream s = new_stream();
  struct gate gate;
  OK(cuEventRecord(e, s));
  close_gate(&gate, s);
  OK(cuEventSynchronize(e));
  STAYS_PENDING(cuStreamQuery(s));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_stream_waits_for_an_event_and_the_host_does_not, "") {
  use(0);
  CUevent e = new_event();
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(64);
  struct gate gate;
  OK(cuMemsetD8_v2(m, 1, 64));
  OK(cuCtxSynchronize());
  close_gate(&gate, a);
  OK(cuMemsetD8Async(m, 2, 64, a));
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0)); /* returns, though the gate is closed */
  OK(cuMemsetD8Async(m, 3, 64, b));
  STAYS_PENDING(cuStreamQuery(b));
  CHECK(is_filled(m, 1, 64));
  open_gate(&gate);
  OK(cuStreamSynchronize(b));
  CHECK(is_filled(m, 3, 64));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuMemFree_v2(m));
}

RULE(a_stream_waits_only_with_what_is_queued_after, "") {
  use(0);
  CUevent e = new_event(), before = new_event();
  CUstream a = new_stream(), b = new_stream();
  struct gate gate;
  close_gate(&gate, a);
  OK(cuEventRecord(e, a));
  OK(cuEventRecord(before, b));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuEventSynchronize(before));
  open_gate(&gate);
  OK(cuStreamSynchronize(a));
  OK(cuStreamSynchronize(b));
  OK(cuEventDestroy_v2(e));
  OK(cuEventDestroy_v2(before));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

/* e is recorded on a held stream, b waits for it, and e is recorded again
 * elsewhere, where it completes: b still waits. */
RULE(recording_again_does_not_end_earlier_waits, "") {
  use(0);
  CUevent e = new_event();
  CUstream a = new_stream(), b = new_stream(), c = new_stream();
  struct gate gate;
  close_gate(&gate, a);
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuEventRecord(e, c));
  OK(cuEventSynchronize(e));
  STAYS_PENDING(cuStreamQuery(b));
  open_gate(&gate);
  OK(cuStreamSynchronize(b));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuStreamDestroy_v2(c));
}

RULE(recording_again_does_not_prolong_earlier_waits, "") {
  use(0);
  CUevent e = new_event();
  CUstream a = new_stream(), b = new_stream(), c = new_stream();
  struct gate gate;
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  close_gate(&gate, c);
  OK(cuEventRecord(e, c));
  OK(cuStreamSynchronize(b));
  STAYS_PENDING(cuEventQuery(e)); /* the latest record counts */
  open_gate(&gate);
  OK(cuEventSynchronize(e));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuStreamDestroy_v2(c));
}

RULE(a_wait_takes_the_latest_record, "") {
  use(0);
  CUevent e = new_event();
  CUstream a = new_stream(), b = new_stream(), c = new_stream();
  struct gate gate;
  close_gate(&gate, a);
  OK(cuEventRecord(e, a));
  OK(cuEventRecord(e, c));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuStreamSynchronize(b));
  OK(cuEventSynchronize(e));
  open_gate(&gate);
  OK(cuStreamSynchronize(a));
  OK(cuEventQuery(e));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
  OK(cuStreamDestroy_v2(c));
}

RULE(a_wait_before_the_first_record_does_nothing, "") {
  use(0);
  CUevent e = new_event();
  CUstream a = new_stream(), b = new_stream();
  struct gate gate;
  OK(cuStreamWaitEvent(b, e, 0));
  close_gate(&gate, a);
  OK(cuEventRecord(e, a));
  OK(cuStreamSynchronize(b));
  open_gate(&gate);
  OK(cuStreamSynchronize(a));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

RULE(a_stream_that_waits_for_its_own_event_goes_on, "") {
  use(0);
  CUevent e = new_event();
  CUstream s = new_stream();
  OK(cuEventRecord(e, s));
  OK(cuStreamWaitEvent(s, e, 0));
  OK(cuStreamSynchronize(s));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_pending_event_may_be_destroyed, "") {
  use(0);
  CUevent e = new_event();
  CUstream a = new_stream(), b = new_stream();
  struct gate gate;
  close_gate(&gate, a);
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuEventDestroy_v2(e)); /* returns, though the gate is closed */
  STAYS_PENDING(cuStreamQuery(b));
  open_gate(&gate);
  OK(cuStreamSynchronize(b));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static void wait_for(void *event) { cuEventSynchronize(*(CUevent *)event); }

RULE(an_event_that_is_waited_for_is_not_to_be_destroyed, "", .violates = true) {
  use(0);
  CUevent e = new_event();
  CUstream s = new_stream();
  struct gate gate;
  struct thread waiting;
  close_gate(&gate, s);
  OK(cuEventRecord(e, s));
  const long long before = reported("synchronisations", 0);
  start(&waiting, wait_for, &e);
  while (reported("synchronisations", 0) == before) nap(1);
  OK(cuEventDestroy_v2(e));
  open_gate(&gate);
  join(&waiting);
  OK(cuStreamDestroy_v2(s));
}

RULE(what_is_no_event_is_refused, "") {
  use(0);
  CUevent e = new_event();
  CUstream s = new_stream();
  int garbage[64] = {0};
  CUevent wrong[] = {NULL, (CUevent)(void *)garbage, (CUevent)(void *)s, e};
  OK(cuEventDestroy_v2(e));
  for (int i = 0; i < 4; i++) {
    IS(cuEventQuery(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuEventSynchronize(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuEventRecord(wrong[i], s), CUDA_ERROR_INVALID_HANDLE);
    IS(cuStreamWaitEvent(s, wrong[i], 0), CUDA_ERROR_INVALID_HANDLE);
    IS(cuEventDestroy_v2(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
  }
  OK(cuStreamDestroy_v2(s));
}

RULE(a_destroyed_event_s_handle_does_not_come_back_to_life, "") {
  use(0);
  CUevent old = new_event();
  OK(cuEventDestroy_v2(old));
  CUevent e[16];
  for (int i = 0; i < 16; i++) {
    e[i] = new_event();
    CHECK(e[i] != old);
  }
  IS(cuEventQuery(old), CUDA_ERROR_INVALID_HANDLE);
  for (int i = 0; i < 16; i++) OK(cuEventDestroy_v2(e[i]));
}

RULE(event_flags_are_checked, "") {
  use(0);
  CUevent e;
  IS(cuEventCreate(&e, 0x80), CUDA_ERROR_INVALID_VALUE);
  IS(cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE); /* without DISABLE_TIMING */
  IS(cuEventCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuEventCreate(&e, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
  OK(cuEventDestroy_v2(e));
}

RULE(wait_flags_are_checked, "") {
  use(0);
  CUevent e = new_event();
  CUstream s = new_stream();
  IS(cuStreamWaitEvent(s, e, 0x40), CUDA_ERROR_INVALID_VALUE);
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(elapsed_time_is_measured, "") {
  use(0);
  CUevent a, b;
  CUstream s = new_stream();
  atomic_bool done;
  float ms = -1;
  OK(cuEventCreate(&a, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&b, CU_EVENT_DEFAULT));
  OK(cuEventRecord(a, s));
  queue_late(&done, s);
  OK(cuEventRecord(b, s));
  OK(cuEventSynchronize(b));
  OK(cuEventElapsedTime(&ms, a, b));
  CHECK(ms >= 25 && ms < 30000);
  OK(cuEventDestroy_v2(a));
  OK(cuEventDestroy_v2(b));
  OK(cuStreamDestroy_v2(s));
}

RULE(elapsed_time_needs_two_records_with_timing, "") {
  use(0);
  CUevent a, b, untimed = new_event();
  CUstream s = new_stream();
  struct gate gate;
  float ms;
  OK(cuEventCreate(&a, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&b, CU_EVENT_DEFAULT));
  OK(cuEventRecord(a, s));
  OK(cuEventRecord(untimed, s));
  OK(cuStreamSynchronize(s));
  IS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE); /* b was not recorded */
  IS(cuEventElapsedTime(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
  close_gate(&gate, s);
  OK(cuEventRecord(b, s));
  IS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
  open_gate(&gate);
  OK(cuEventSynchronize(b));
  OK(cuEventElapsedTime(&ms, a, b));
  OK(cuEventDestroy_v2(a));
  OK(cuEventDestroy_v2(b));
  OK(cuEventDestroy_v2(untimed));
  OK(cuStreamDestroy_v2(s));
}

RULE(an_event_is_recorded_in_its_own_context_only, "devices=2") {
  CUcontext a = use(0);
  CUevent e = new_event();
  use(1);
  CUstream s = new_stream();
  IS(cuEventRecord(e, s), CUDA_ERROR_INVALID_HANDLE);
  OK(cuCtxSetCurrent(a));
  IS(cuEventRecord(e, s), CUDA_ERROR_INVALID_HANDLE);
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_stream_waits_for_an_event_of_another_device, "devices=2") {
  CUcontext first = use(0);
  CUevent e = new_event();
  CUstream a = new_stream();
  struct gate gate;
  close_gate(&gate, a);
  OK(cuEventRecord(e, a));
  use(1);
  CUstream b = new_stream();
  OK(cuStreamWaitEvent(b, e, 0));
  STAYS_PENDING(cuStreamQuery(b));
  STAYS_PENDING(cuEventQuery(e)); /* whichever device is current */
  open_gate(&gate);
  OK(cuStreamSynchronize(b));
  OK(cuEventSynchronize(e));
  OK(cuStreamDestroy_v2(b));
  OK(cuCtxSetCurrent(first));
  OK(cuStreamDestroy_v2(a));
  OK(cuEventDestroy_v2(e));
}

RULE(an_event_on_the_legacy_stream_waits_for_blocking_streams, "") {
  use(0);
  CUevent e = new_event();
  CUstream s = new_blocking_stream();
  struct gate gate;
  close_gate(&gate, s);
  OK(cuEventRecord(e, NULL));
  STAYS_PENDING(cuEventQuery(e));
  open_gate(&gate);
  OK(cuEventSynchronize(e));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
}

RULE(a_held_event_fires_only_when_told, "") {
  use(0);
  CUevent e = new_event(), after = new_event();
  CUstream a = new_stream(), b = new_stream();
  OK(cudasim_event_hold(e));
  OK(cuEventRecord(e, a));
  OK(cuEventRecord(after, a));
  OK(cuStreamWaitEvent(b, e, 0));
  STAYS_PENDING(cuEventQuery(e));
  STAYS_PENDING(cuEventQuery(after));
  STAYS_PENDING(cuStreamQuery(a));
  STAYS_PENDING(cuStreamQuery(b));
  OK(cudasim_event_fire(e));
  OK(cuEventSynchronize(e));
  OK(cuStreamSynchronize(a));
  OK(cuStreamSynchronize(b));
  OK(cuEventDestroy_v2(e));
  OK(cuEventDestroy_v2(after));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static void fire_late(void *event) {
  nap(20);
  OK(cudasim_event_fire(event));
}

RULE(synchronizing_a_held_event_waits_until_it_is_fired, "") {
  use(0);
  CUevent e = new_event();
  CUstream s = new_stream();
  struct thread firing;
  OK(cudasim_event_hold(e));
  OK(cuEventRecord(e, s));
  start(&firing, fire_late, e);
  OK(cuEventSynchronize(e));
  OK(cuEventQuery(e));
  join(&firing);
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_held_event_may_be_destroyed_and_fired_then, "") {
  use(0);
  CUevent e = new_event();
  CUstream s = new_stream();
  OK(cudasim_event_hold(e));
  OK(cuEventRecord(e, s));
  OK(cuEventDestroy_v2(e));
  STAYS_PENDING(cuStreamQuery(s));
  OK(cudasim_event_fire(e));
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
}

RULE(an_event_that_was_fired_is_held_no_longer, "") {
  use(0);
  CUevent e = new_event();
  OK(cudasim_event_hold(e));
  OK(cudasim_event_fire(e));
  OK(cuEventRecord(e, NULL));
  OK(cuEventSynchronize(e));
  OK(cuEventDestroy_v2(e));
}

RULE(only_events_are_held_and_fired, "") {
  use(0);
  int garbage[64] = {0};
  CHECK(cudasim_event_hold(NULL) != CUDA_SUCCESS);
  CHECK(cudasim_event_hold(garbage) != CUDA_SUCCESS);
  CHECK(cudasim_event_fire(garbage) != CUDA_SUCCESS);
}
