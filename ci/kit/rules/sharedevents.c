/* Events of two processes. */
#define GROUP "two processes"
#include "rules.h"

enum { FLAGS = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING };

static CUevent new_shared_event(void) {
  CUevent e = NULL;
  OK(cuEventCreate(&e, FLAGS));
  made(EVENT, e);
  return e;
}

static void say_event(const struct peer* to, CUevent e) {
  CUipcEventHandle h;
  OK(cuIpcGetEventHandle(&h, e));
  say(to, &h, sizeof h);
}

static CUevent hear_event(const struct peer* from) {
  CUipcEventHandle h;
  CUevent e = NULL;
  hear(from, &h, sizeof h);
  OK(cuIpcOpenEventHandle(&e, h));
  return e;
}

/* Opens an event, records it behind a gate, and opens the gate when told. */
static void record_behind_a_gate(void) {
  CUstream s = new_stream();
  CUevent e = hear_event(&parent);
  IS(cuEventQuery(e), CUDA_SUCCESS); /* done, or never recorded */
  close_gate(s);
  OK(cuEventRecord(e, s));
  STAYS_PENDING(cuEventQuery(e));
  say_word(&parent);
  hear_word(&parent);
  open_gate();
  OK(cuEventSynchronize(e));
  hear_word(&parent);
  OK(cuEventDestroy_v2(e));
}

static CUevent begin(struct peer* peer) {
  CUevent e = new_shared_event();
  OK(cuEventRecord(e, NULL)); /* the other's record is later, and counts */
  OK(cuEventSynchronize(e));
  start_peer(peer);
  say_event(peer, e);
  hear_word(peer);
  return e;
}

static void finish(struct peer* peer, CUevent e) {
  say_word(peer);
  end_peer(peer);
  OK(cuEventDestroy_v2(e));
}

RULE(an_event_of_another_process_is_pending_until_it_is_done, MANUAL,
     "An event that another process has recorded is queried and waited for.", .needs = IPC,
     .peer = record_behind_a_gate, .alone = true) {
  struct peer peer;
  CUevent e = begin(&peer);
  STAYS_PENDING(cuEventQuery(e));
  say_word(&peer);
  IS(cuEventSynchronize(e), CUDA_SUCCESS);
  IS(cuEventQuery(e), CUDA_SUCCESS);
  finish(&peer, e);
}

RULE(a_stream_waits_for_an_event_of_another_process, MANUAL, "cuStreamWaitEvent waits for a record of another process.",
     .needs = IPC, .peer = record_behind_a_gate, .alone = true) {
  struct peer peer;
  CUevent e = begin(&peer);
  OK(cuStreamWaitEvent(a, e, 0));
  OK(cuEventRecord(f, a));
  STAYS_PENDING(cuEventQuery(f));
  OK(cuStreamSynchronize(b));
  say_word(&peer);
  IS(cuEventSynchronize(f), CUDA_SUCCESS);
  finish(&peer, e);
}

RULE(the_latest_record_of_any_process_counts, READING, "The latest record of a shared event counts, of any process.",
     .needs = IPC, .peer = record_behind_a_gate, .alone = true) {
  struct peer peer;
  CUevent e = begin(&peer);
  OK(cuStreamWaitEvent(b, e, 0)); /* for the other's */
  OK(cuEventRecord(e, a));
  DOES_NOT_WAIT(cuEventSynchronize(e));
  STAYS_PENDING(cuStreamQuery(b));
  say_word(&peer);
  OK(cuStreamSynchronize(b));
  finish(&peer, e);
}

/* The maker records, the other waits; with memory, as programs do it. */
static void wait_and_read(void) {
  CUipcMemHandle h;
  CUdeviceptr m = 0;
  CUstream s = new_stream();
  CUevent e = hear_event(&parent);
  unsigned char* p = new_pinned(64);
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
}

RULE(processes_hand_memory_to_each_other, MANUAL,
     "Work of one process comes after that of another, and back, by waits for one event.", .needs = IPC,
     .peer = wait_and_read, .alone = true) {
  struct peer peer;
  CUevent e = new_shared_event();
  CUipcMemHandle h;
  OK(cuIpcGetMemHandle(&h, m));
  start_peer(&peer);
  close_gate(a);
  OK(cuMemsetD8Async(m, 2, 64, a));
  OK(cuEventRecord(e, a)); /* before the handle is asked for */
  say_event(&peer, e);
  say(&peer, &h, sizeof h);
  hear_word(&peer);
  OK(cuStreamWaitEvent(a, e, 0)); /* for the other process, which waits for this one */
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 3, 64));
  finish(&peer, e);
}

enum { ROUNDS = 1200 };

static void ping_pong(const struct peer* other, CUevent ours, CUevent theirs, CUdeviceptr m, bool first) {
  CUstream s = new_stream();
  unsigned char* p = new_pinned(64);
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
    if (!all_bytes(p, (unsigned char)(2 * i - first), 64)) stop("in round %d another value was read", i);
  }
  if (first) hear_word(other);
  OK(cuStreamSynchronize(s));
}

static void pong(void) {
  CUipcMemHandle h;
  CUdeviceptr m = 0;
  CUevent theirs = hear_event(&parent), ours = new_shared_event();
  hear(&parent, &h, sizeof h);
  OK(cuIpcOpenMemHandle_v2(&m, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  say_event(&parent, ours);
  ping_pong(&parent, ours, theirs, m, false);
  OK(cuIpcCloseMemHandle(m));
  OK(cuEventDestroy_v2(theirs));
  hear_word(&parent);
}

RULE(processes_take_turns, MANUAL, "Two processes write to one memory in turn, each after the other's event.",
     .needs = IPC, .peer = pong, .alone = true) {
  struct peer peer;
  CUipcMemHandle h;
  CUevent ours = new_shared_event();
  OK(cuIpcGetMemHandle(&h, m));
  start_peer(&peer);
  say_event(&peer, ours);
  say(&peer, &h, sizeof h);
  CUevent theirs = hear_event(&peer);
  ping_pong(&peer, ours, theirs, m, true);
  OK(cuEventDestroy_v2(theirs));
  finish(&peer, ours);
}

/* The record that is waited for is followed by so many that its place may be used again, by one that is pending. */
enum { RECORDS = 1024 };

static void record_many(void) {
  CUstream s = new_stream();
  CUevent e = hear_event(&parent);
  close_gate(s);
  OK(cuEventRecord(e, s));
  say_word(&parent);
  hear_word(&parent);
  open_gate();
  for (int i = 1; i < RECORDS; i++) {
    OK(cuEventRecord(e, s));
    if (i % 100 == 0) OK(cuStreamSynchronize(s));
  }
  OK(cuStreamSynchronize(s));
  close_gate(s);
  OK(cuEventRecord(e, s));
  say_word(&parent);
  hear_word(&parent);
  open_gate();
  OK(cuStreamSynchronize(s));
}

RULE(a_wait_does_not_take_a_later_record_for_its_own, MANUAL,
     "A wait for a record of another process ends with that record, however many are made after it.", .needs = IPC,
     .peer = record_many, .alone = true) {
  struct peer peer;
  CUevent e = new_shared_event();
  close_gate(a);
  start_peer(&peer);
  say_event(&peer, e);
  hear_word(&peer);
  OK(cuStreamWaitEvent(a, e, 0));
  say_word(&peer);
  hear_word(&peer);
  open_gate();
  DOES_NOT_WAIT(cuStreamSynchronize(a)); /* though the latest record is pending */
  IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
  finish(&peer, e);
}

RULE(a_shared_event_works_in_its_own_process, MANUAL, "An event of CU_EVENT_INTERPROCESS is an event like any other.",
     .needs = IPC) {
  CUevent e = new_shared_event();
  IS(cuEventQuery(e), CUDA_SUCCESS);
  close_gate(a);
  OK(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
  STAYS_PENDING(cuEventQuery(e));
  STAYS_PENDING(cuStreamQuery(b));
  open_gate();
  OK(cuEventSynchronize(e));
  OK(cuStreamSynchronize(b));
  for (int i = 0; i < 5000; i++) {
    OK(cuEventRecord(e, i % 2 ? a : b));
    if (i % 500 < 498) continue;
    OK(cuStreamSynchronize(i % 2 ? a : b));
  }
}

static void open_events(void) {
  CUipcEventHandle h, gone;
  CUevent e = NULL;
  float ms;
  hear(&parent, &h, sizeof h);
  hear(&parent, &gone, sizeof gone);
  IS_ONE_OF(cuIpcOpenEventHandle(&e, gone), CUDA_ERROR_MAP_FAILED, CUDA_ERROR_INVALID_HANDLE);
  IS(cuIpcOpenEventHandle(NULL, h), CUDA_ERROR_INVALID_VALUE);
  OK(cuIpcOpenEventHandle(&e, h));
  IS(cuIpcGetEventHandle(&gone, e), CUDA_ERROR_INVALID_HANDLE); /* not handed on */
  IS(cuEventElapsedTime(&ms, e, e), CUDA_ERROR_INVALID_HANDLE); /* without timing */
  OK(cuCtxSetCurrent(NULL));
  IS(cuIpcOpenEventHandle(&e, h), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(only_live_events_of_other_processes_are_opened, READING,
     "cuIpcOpenEventHandle of a destroyed event is MAP_FAILED, in the process that made it INVALID_CONTEXT.",
     .needs = IPC, .peer = open_events, .alone = true) {
  struct peer peer;
  CUipcEventHandle h, garbage = {"garbage"};
  CUevent e = new_shared_event(), gone = new_shared_event(), wrong;
  OK(cuIpcGetEventHandle(&h, e));
  IS(cuIpcOpenEventHandle(&wrong, h), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuIpcOpenEventHandle(&wrong, garbage), CUDA_ERROR_INVALID_VALUE);
  start_peer(&peer);
  say_event(&peer, e);
  OK(cuIpcGetEventHandle(&h, gone));
  OK(cuEventDestroy_v2(gone));
  say(&peer, &h, sizeof h);
  end_peer(&peer);
}

RULE(only_events_that_are_made_so_are_exported, READING,
     "cuIpcGetEventHandle of an event without CU_EVENT_INTERPROCESS is INVALID_HANDLE.", .needs = IPC, .alone = true) {
  CUipcEventHandle h;
  IS(cuIpcGetEventHandle(&h, new_event()), CUDA_ERROR_INVALID_HANDLE);
  IS(cuIpcGetEventHandle(&h, NULL), CUDA_ERROR_INVALID_HANDLE);
  IS(cuIpcGetEventHandle(NULL, new_shared_event()), CUDA_ERROR_INVALID_VALUE);
}
