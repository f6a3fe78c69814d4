/* When queued work is done: delays, random order, pauses. */
#include "simulator.h"

WITH_OBJECTS(a_delay_is_waited_out, "delay=20000") {
  double start = now();
  for (int i = 0; i < 3; i++) OK(cuMemsetD8Async(m, 1, 64, a));
  OK(cuStreamSynchronize(a));
  CHECK(now() - start >= 0.06);
}

WITH_OBJECTS(random_delays_are_waited_out, "schedule=random,delay=2000,seed=5") {
  double start = now();
  for (int i = 0; i < 20; i++) OK(cuMemsetD8Async(m, 1, 64, a));
  OK(cuStreamSynchronize(a));
  CHECK(now() - start >= 0.01); /* 0.04 on the average */
}

static int order[8];
static atomic_int orders;

static void note(void *number) { order[atomic_fetch_add(&orders, 1)] = (int)(intptr_t)number; }

SIMULATED(a_random_schedule_changes_the_order_of_streams, "schedule=random,delay=300,seed=7") {
  CUstream s[8];
  bool changed = false, all = true;
  for (int i = 0; i < 8; i++) s[i] = new_stream();
  for (int round = 0; round < 10; round++) {
    orders = 0;
    for (int i = 0; i < 8; i++) OK(cuLaunchHostFunc(s[i], note, (void *)(intptr_t)i));
    OK(cuCtxSynchronize());
    all = all && orders == 8;
    for (int i = 0; i < 8; i++) changed = changed || order[i] != i;
  }
  CHECK(changed && all);
}

static atomic_bool entered, left;

static void take_time(void *milliseconds) {
  entered = true;
  nap(*(int *)milliseconds);
  left = true;
}

WITH_OBJECTS(pausing_waits_for_what_runs, "") {
  int milliseconds = 20;
  OK(cuLaunchHostFunc(a, take_time, &milliseconds));
  while (!entered) nap(1);
  cudasim_pause();
  CHECK(left);
  cudasim_resume();
  OK(cuStreamSynchronize(a));
}

static void raise_flag(void *flag) { *(atomic_bool *)flag = true; }

/* The machine is to be paused while the first function runs. On a busy one that may have ended before: it takes longer
 * then. */
WITH_OBJECTS(a_host_function_that_waits_for_another_begins_in_no_pause, "") {
  atomic_bool called = true;
  for (int milliseconds = 20; called && milliseconds < 10000; milliseconds *= 2) {
    entered = called = false;
    OK(cuLaunchHostFunc(a, take_time, &milliseconds));
    while (!entered) nap(1);
    OK(cuLaunchHostFunc(b, raise_flag, &called));
    nap(5); /* its stream waits for the end of the other function */
    cudasim_pause();
    if (called) {
      cudasim_resume();
      OK(cuCtxSynchronize());
    }
  }
  STAYS(!called);
  cudasim_resume();
  OK(cuStreamSynchronize(b));
  CHECK(called);
}

struct free_of {
  CUcontext context;
  CUdeviceptr memory;
  CUresult result;
};

static void free_it(void *data) {
  struct free_of *f = data;
  f->result = cuCtxSetCurrent(f->context);
  if (!f->result) f->result = cuMemFree_v2(f->memory);
}

/* The free waits for a, and this thread may have more to queue before it lets a go on. */
static void check_free_beside(CUstream b, CUdeviceptr m, void (*go_on)(void *), void *event) {
  struct free_of f = {.memory = new_memory(64)};
  struct thread thread;
  OK(cuCtxGetCurrent(&f.context));
  start(&thread, free_it, &f);
  nap(20);
  OK(cuMemsetD8Async(m, 2, 64, b));
  go_on(event);
  join(&thread);
  SAME(f.result, CUDA_SUCCESS);
  OK(cuCtxSynchronize());
}

static void resume(void *unused) {
  (void)unused;
  cudasim_resume();
}

static void fire(void *event) { OK(cudasim_event_fire(event)); }

WITH_OBJECTS(a_free_that_waits_for_the_end_of_a_pause_holds_up_no_other_thread, "") {
  cudasim_pause();
  OK(cuEventRecord(e, a));
  check_free_beside(b, m, resume, NULL);
}

WITH_OBJECTS(a_free_that_waits_for_a_held_event_holds_up_no_other_thread, "") {
  OK(cudasim_event_hold(e));
  OK(cuEventRecord(e, a));
  check_free_beside(b, m, fire, e);
}

static atomic_int in_turn;

static void take_turn(void *turn) { *(int *)turn = in_turn++; }

/* Whether they are called in turn, where their streams have so many milliseconds each to come to them. */
static bool are_called_in_turn(CUstream a, int milliseconds) {
  enum { n = 6 };
  int turn[n];
  CUstream streams[n];
  in_turn = 0;
  for (int i = 0; i < n; i++) streams[i] = new_stream();
  close_gate(a);
  nap(milliseconds);
  for (int i = 0; i < n; i++) {
    OK(cuLaunchHostFunc(streams[i], take_turn, &turn[i]));
    nap(milliseconds);
  }
  open_gate();
  OK(cuCtxSynchronize());
  bool in_order = true;
  for (int i = 0; i < n; i++) {
    in_order = in_order && turn[i] == i;
    OK(cuStreamDestroy_v2(streams[i]));
  }
  return in_order;
}

/* On a loaded machine they need longer to come. */
WITH_OBJECTS(host_functions_are_called_in_the_order_in_which_their_streams_come_to_them, "") {
  int milliseconds = 1;
  while (milliseconds < 300 && !are_called_in_turn(a, milliseconds)) milliseconds *= 2;
  CHECK(milliseconds < 300);
}

static void resume_late(void *flag) {
  nap(20);
  *(atomic_bool *)flag = true;
  cudasim_resume();
}

WITH_OBJECTS(calls_that_wait_wait_for_the_end_of_a_pause, "") {
  struct thread resuming;
  atomic_bool resumed = false;
  cudasim_pause();
  OK(cuMemsetD8Async(m, 1, 64, a));
  start(&resuming, resume_late, &resumed);
  OK(cuStreamSynchronize(a));
  CHECK(resumed);
  join(&resuming);
}

WITH_OBJECTS(pausing_does_not_nest, "") {
  cudasim_resume();
  cudasim_pause();
  cudasim_pause();
  OK(cuMemsetD8Async(m, 1, 64, a));
  STAYS_PENDING(cuStreamQuery(a));
  cudasim_resume();
  OK(cuStreamSynchronize(a));
}

WITH_OBJECTS(a_lazy_stream_that_is_full_goes_on, "schedule=lazy") {
  for (int i = 0; i < 3000; i++) OK(cuMemsetD8Async(m, (unsigned char)i, 64, a));
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 2999 % 256, 64));
}
