/* Events that are held back, and one that is waited for. */
#include "simulator.h"

static void wait_for(void *event) { cuEventSynchronize(*(CUevent *)event); }

SIMULATED(an_event_that_is_waited_for_is_not_to_be_destroyed, "", .violates = true) {
  CUevent e = new_event();
  CUstream s = new_stream();
  struct thread waiting;
  close_gate(s);
  OK(cuEventRecord(e, s));
  const long long before = reported("synchronisations", 0);
  start(&waiting, wait_for, &e);
  while (reported("synchronisations", 0) == before) nap(1);
  OK(cuEventDestroy_v2(e));
  open_gate();
  join(&waiting);
}

WITH_OBJECTS(a_held_event_fires_only_when_told, "") {
  OK(cudasim_event_hold(e));
  OK(cuEventRecord(e, a));
  OK(cuEventRecord(f, a));
  OK(cuStreamWaitEvent(b, e, 0));
  STAYS_PENDING(cuEventQuery(e));
  STAYS_PENDING(cuEventQuery(f));
  STAYS_PENDING(cuStreamQuery(a));
  STAYS_PENDING(cuStreamQuery(b));
  OK(cudasim_event_fire(e));
  OK(cuEventSynchronize(e));
  OK(cuStreamSynchronize(a));
  OK(cuStreamSynchronize(b));
}

static void fire_late(void *event) {
  nap(20);
  OK(cudasim_event_fire(event));
}

WITH_OBJECTS(synchronizing_a_held_event_waits_until_it_is_fired, "") {
  struct thread firing;
  OK(cudasim_event_hold(e));
  OK(cuEventRecord(e, a));
  start(&firing, fire_late, e);
  OK(cuEventSynchronize(e));
  OK(cuEventQuery(e));
  join(&firing);
}

WITH_OBJECTS(a_held_event_may_be_destroyed_and_fired_then, "") {
  OK(cudasim_event_hold(e));
  OK(cuEventRecord(e, a));
  OK(cuEventDestroy_v2(e));
  STAYS_PENDING(cuStreamQuery(a));
  OK(cudasim_event_fire(e));
  OK(cuStreamSynchronize(a));
}

WITH_OBJECTS(an_event_that_was_fired_is_held_no_longer, "") {
  OK(cudasim_event_hold(e));
  OK(cudasim_event_fire(e));
  OK(cuEventRecord(e, NULL));
  OK(cuEventSynchronize(e));
}

SIMULATED(only_events_are_held_and_fired, "") {
  int garbage[64] = {0};
  CHECK(cudasim_event_hold(NULL) != CUDA_SUCCESS);
  CHECK(cudasim_event_hold(garbage) != CUDA_SUCCESS);
  CHECK(cudasim_event_fire(garbage) != CUDA_SUCCESS);
}
