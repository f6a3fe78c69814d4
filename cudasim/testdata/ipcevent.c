/* Events of two processes. */
#include "rules.h"

enum { FLAGS = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING };

static CUevent make_event(void) {
  CUevent e;
  OK(cuEventCreate(&e, FLAGS));
  return e;
}

static void say_event(const struct peer *to, CUevent e) {
  CUipcEventHandle h;
  OK(cuIpcGetEventHandle(&h, e));
  say(to, &h, sizeof h);
}

static CUevent hear_event(const struct peer *from) {
  CUipcEventHandle h;
  CUevent e = NULL;
  hear(from, &h, sizeof h);
  OK(cuIpcOpenEventHandle(&e, h));
  return e;
}

static void say_word(const struct peer *to) { say(to, "w", 1); }

static void hear_word(const struct peer *from) {
  char word;
  hear(from, &word, 1);
}

/* Records behind a gate, which the other process has opened; a second record without. */
static void record_behind_a_gate(void) {
  use(0);
  CUstream s = new_stream();
  CUevent e = hear_event(&parent);
  struct gate gate;
  OK(cuEventQuery(e)); /* never recorded here */
  close_gate(&gate, s);
  OK(cuEventRecord(e, s));
  STAYS_PENDING(cuEventQuery(e));
  say_word(&parent);
  hear_word(&parent);
  nap(20); /* work that does not wait comes too early */
  open_gate(&gate);
  OK(cuEventSynchronize(e));
  hear_word(&parent);
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

static CUevent begin(struct peer *peer) {
  use(0);
  CUevent e = make_event();
  OK(cuEventRecord(e, NULL)); /* the other's record is later, and counts */
  OK(cuEventSynchronize(e));
  start_peer(peer);
  say_event(peer, e);
  hear_word(peer);
  return e;
}

static void finish(struct peer *peer, CUevent e) {
  say_word(peer);
  end_peer(peer);
  OK(cuEventDestroy_v2(e));
}

RULE(an_event_of_another_process_is_pending_until_it_is_done, "", .peer = record_behind_a_gate) {
  struct peer peer;
  CUevent e = begin(&peer);
  STAYS_PENDING(cuEventQuery(e));
  say_word(&peer);
  OK(cuEventSynchronize(e));
  OK(cuEventQuery(e));
  finish(&peer, e);
}

RULE(a_stream_waits_for_an_event_of_another_process, "", .peer = record_behind_a_gate) {
  struct peer peer;
  CUevent e = begin(&peer), mine = new_event();
  CUstream s = new_stream(), free_one = new_stream();
  OK(cuStreamWaitEvent(s, e, 0));
  OK(cuEventRecord(mine, s));
  STAYS_PENDING(cuEventQuery(mine));
  OK(cuStreamSynchronize(free_one));
  say_word(&peer);
  OK(cuEventSynchronize(mine));
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(free_one));
  OK(cuEventDestroy_v2(mine));
  finish(&peer, e);
}

RULE(the_latest_record_counts_whichever_process_made_it, "", .peer = record_behind_a_gate) {
  struct peer peer;
  CUevent e = begin(&peer);
  CUstream s = new_stream(), waiting = new_stream();
  OK(cuStreamWaitEvent(waiting, e, 0)); /* for the other's */
  OK(cuEventRecord(e, s));
  OK(cuEventSynchronize(e)); /* ours, though the other's is pending */
  STAYS_PENDING(cuStreamQuery(waiting));
  say_word(&peer);
  OK(cuStreamSynchronize(waiting));
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(waiting));
  finish(&peer, e);
}

/* The maker records, the other waits; with memory, as programs do it. */
static void wait_and_read(void) {
  use(0);
  CUipcMemHandle h;
  CUdeviceptr m;
  CUstream s = new_stream();
  CUevent e = hear_event(&parent);
  unsigned char *p = new_pinned(64);
  hear(&parent, &h, sizeof h);
  OK(cuIpcOpenMemHandle_v2(&m, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
  OK(cuStreamWaitEvent(s, e, 0));
  OK(cuMemcpyDtoHAsync_v2(p, m, 64, s));
  OK(cuMemsetD8Async(m, 3, 64, s));
  OK(cuEventRecord(e, s)); /* and back */
  say_word(&parent);
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes(p, 2, 64));
  hear_word(&parent);
  OK(cuIpcCloseMemHandle(m));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFreeHost(p));
}

static void hand_over_and_back(void) {
  use(0);
  struct peer peer;
  CUevent e = make_event();
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  CUipcMemHandle h;
  struct gate gate;
  OK(cuIpcGetMemHandle(&h, m));
  start_peer(&peer);
  close_gate(&gate, s);
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuEventRecord(e, s)); /* before the handle is asked for */
  say_event(&peer, e);
  say(&peer, &h, sizeof h);
  hear_word(&peer);
  OK(cuStreamWaitEvent(s, e, 0)); /* for the other process's action after this one's work */
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 3, 64));
  finish(&peer, e);
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

RULE(processes_hand_memory_to_each_other, "", .peer = wait_and_read) { hand_over_and_back(); }
RULE(processes_hand_memory_to_each_other_late, "schedule=random,delay=3000", .peer = wait_and_read) {
  hand_over_and_back();
}

/* Many records of both processes at once, and none is waited for too little. */
enum { ROUNDS = 3000 };

static void ping_pong(const struct peer *other, CUevent ours, CUevent theirs, CUdeviceptr m, bool first) {
  CUstream s = new_stream();
  unsigned char *p = new_pinned(64);
  for (int i = 0; i < ROUNDS; i++) {
    if (i > 0 || !first) {
      hear_word(other);
      OK(cuStreamWaitEvent(s, theirs, 0));
      OK(cuMemcpyDtoHAsync_v2(p, m, 64, s));
    }
    OK(cuMemsetD8Async(m, (unsigned char)(2 * i + !first), 64, s));
    OK(cuEventRecord(ours, s));
    say_word(other);
    if (i % 100 != 1) continue;
    OK(cuStreamSynchronize(s));
    CHECK(all_bytes(p, (unsigned char)(2 * i - first), 64));
  }
  if (first) hear_word(other);
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFreeHost(p));
}

static void pong(void) {
  use(0);
  CUipcMemHandle h;
  CUdeviceptr m;
  CUevent theirs = hear_event(&parent), ours = make_event();
  hear(&parent, &h, sizeof h);
  OK(cuIpcOpenMemHandle_v2(&m, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  say_event(&parent, ours);
  ping_pong(&parent, ours, theirs, m, false);
  OK(cuIpcCloseMemHandle(m));
  OK(cuEventDestroy_v2(theirs));
  hear_word(&parent);
  OK(cuEventDestroy_v2(ours));
}

RULE(processes_take_turns, "", .peer = pong) {
  use(0);
  struct peer peer;
  CUipcMemHandle h;
  CUdeviceptr m = new_memory(64);
  CUevent ours = make_event();
  OK(cuIpcGetMemHandle(&h, m));
  start_peer(&peer);
  say_event(&peer, ours);
  say(&peer, &h, sizeof h);
  CUevent theirs = hear_event(&peer);
  ping_pong(&peer, ours, theirs, m, true);
  OK(cuEventDestroy_v2(theirs));
  say_word(&peer);
  end_peer(&peer);
  OK(cuEventDestroy_v2(ours));
  OK(cuMemFree_v2(m));
}

/* The place of a record is used again by one that is pending. */
enum { PLACES = 1024 };

static void record_many(void) {
  use(0);
  CUstream s = new_stream();
  CUevent e = hear_event(&parent);
  struct gate gate;
  close_gate(&gate, s);
  OK(cuEventRecord(e, s));
  say_word(&parent);
  hear_word(&parent);
  open_gate(&gate);
  for (int i = 1; i < PLACES; i++) {
    OK(cuEventRecord(e, s));
    if (i % 100 == 0) OK(cuStreamSynchronize(s));
  }
  OK(cuStreamSynchronize(s));
  close_gate(&gate, s);
  OK(cuEventRecord(e, s));
  say_word(&parent);
  hear_word(&parent);
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_wait_does_not_take_a_later_record_for_its_own, "", .peer = record_many) {
  use(0);
  struct peer peer;
  CUevent e = make_event();
  CUstream s = new_stream();
  struct gate gate;
  close_gate(&gate, s);
  start_peer(&peer);
  say_event(&peer, e);
  hear_word(&peer);
  OK(cuStreamWaitEvent(s, e, 0));
  say_word(&peer);
  hear_word(&peer);
  open_gate(&gate);
  OK(cuStreamSynchronize(s)); /* though the latest record is pending */
  IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
  finish(&peer, e);
  OK(cuStreamDestroy_v2(s));
}

/* ---- errors ---- */

RULE(a_record_of_a_process_that_ended_counts_as_done, "", .violates = true, .peer = record_behind_a_gate) {
  struct peer peer;
  CUevent e = begin(&peer);
  CUstream s = new_stream();
  OK(cuStreamWaitEvent(s, e, 0));
  IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
  kill_peer(&peer);
  OK(cuStreamSynchronize(s));
  OK(cuEventQuery(e));
  CHECK(reports("violations", "ended before its record of an event was done"));
  OK(cuEventRecord(e, s)); /* the event is of use still */
  OK(cuEventSynchronize(e));
  OK(cuStreamDestroy_v2(s));
  OK(cuEventDestroy_v2(e));
}

static void use_after_its_end(void) {
  use(0);
  CUevent e = hear_event(&parent);
  say_word(&parent);
  hear_word(&parent);
  OK(cuEventQuery(e));
  CHECK(reports("violations", "cuEventQuery uses an event that was destroyed"));
  OK(cuEventDestroy_v2(e));
}

RULE(using_an_event_that_its_maker_destroyed_is_a_violation, "", .peer = use_after_its_end, .peer_violates = true) {
  use(0);
  struct peer peer;
  CUevent e = make_event();
  start_peer(&peer);
  say_event(&peer, e);
  hear_word(&peer);
  OK(cuEventDestroy_v2(e));
  say_word(&peer);
  end_peer(&peer);
}

static void try_to_open(void) {
  use(0);
  CUipcEventHandle h, gone;
  CUevent e;
  float ms;
  hear(&parent, &h, sizeof h);
  hear(&parent, &gone, sizeof gone);
  IS(cuIpcOpenEventHandle(&e, gone), CUDA_ERROR_MAP_FAILED);
  IS(cuIpcOpenEventHandle(NULL, h), CUDA_ERROR_INVALID_VALUE);
  OK(cuIpcOpenEventHandle(&e, h));
  IS(cuIpcGetEventHandle(&gone, e), CUDA_ERROR_INVALID_HANDLE); /* not handed on */
  IS(cuEventElapsedTime(&ms, e, e), CUDA_ERROR_INVALID_HANDLE); /* without timing */
  OK(cuEventDestroy_v2(e));
  OK(cuCtxSetCurrent(NULL));
  IS(cuIpcOpenEventHandle(&e, h), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(only_live_events_of_other_processes_are_opened, "", .peer = try_to_open) {
  use(0);
  struct peer peer;
  CUipcEventHandle h, garbage = {"garbage"};
  CUevent e = make_event(), gone = make_event(), ordinary = new_event(), wrong;
  IS(cuIpcGetEventHandle(&h, ordinary), CUDA_ERROR_INVALID_HANDLE);
  IS(cuIpcGetEventHandle(&h, NULL), CUDA_ERROR_INVALID_HANDLE);
  IS(cuIpcGetEventHandle(NULL, e), CUDA_ERROR_INVALID_VALUE);
  OK(cuIpcGetEventHandle(&h, e));
  IS(cuIpcOpenEventHandle(&wrong, h), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuIpcOpenEventHandle(&wrong, garbage), CUDA_ERROR_INVALID_VALUE);
  start_peer(&peer);
  say_event(&peer, e);
  OK(cuIpcGetEventHandle(&h, gone));
  OK(cuEventDestroy_v2(gone));
  say(&peer, &h, sizeof h);
  end_peer(&peer);
  OK(cuEventDestroy_v2(e));
  OK(cuEventDestroy_v2(ordinary));
}

RULE(an_interprocess_event_works_in_its_own_process, "") {
  use(0);
  CUevent e = make_event();
  CUstream a = new_stream(), b = new_stream();
  struct gate gate;
  int supported = 0;
  OK(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
  SAME(supported, 1);
  OK(cuEventQuery(e));
  close_gate(&gate, a);
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  STAYS_PENDING(cuEventQuery(e));
  STAYS_PENDING(cuStreamQuery(b));
  open_gate(&gate);
  OK(cuEventSynchronize(e));
  OK(cuStreamSynchronize(b));
  for (int i = 0; i < 5000; i++) { /* more than there is room for at once */
    OK(cuEventRecord(e, i % 2 ? a : b));
    if (i % 500 < 498) continue;
    OK(cuStreamSynchronize(i % 2 ? a : b));
  }
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}
