/* Memory and events of a process that has ended, or uses them wrongly. */
#include "simulator.h"

enum { SIZE = 100000, LAZY = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS };

static CUipcMemHandle export(CUdeviceptr m) {
  CUipcMemHandle h;
  OK(cuIpcGetMemHandle(&h, m));
  return h;
}

static CUdeviceptr open_handle(const CUipcMemHandle *h) {
  CUdeviceptr m = 0;
  OK(cuIpcOpenMemHandle_v2(&m, *h, LAZY));
  return m;
}

static CUipcMemHandle hear_handle(void) {
  CUipcMemHandle h;
  hear(&parent, &h, sizeof h);
  return h;
}

/* Memory at the address of memory that was shared is not shared. */
static void keep_open(void) {
  use(0);
  CUipcMemHandle h = hear_handle();
  const long long before = reported("device_bytes", 0);
  CUdeviceptr m = open_handle(&h);
  SAME(reported("device_bytes", 0), before); /* its maker pays for it */
  OK(cuMemsetD8_v2(m, 9, 4096));
  OK(cuCtxSynchronize());
  say_word(&parent);
  hear_word(&parent);
  OK(cuMemsetD8_v2(m, 9, 4096));
  OK(cuCtxSynchronize());
  OK(cuIpcCloseMemHandle(m));
}

SIMULATED(freeing_memory_that_another_process_has_open_is_a_violation, "", .violates = true, .peer = keep_open) {
  struct peer peer;
  CUdeviceptr m = new_memory(4096), reused = 0;
  CUipcMemHandle h = export(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  hear_word(&peer);
  OK(cuMemFree_v2(m));
  CHECK(reports("violations", "was freed while process"));
  for (int i = 0; i < 200 && reused != m; i++) {
    if (i > 0) OK(cuMemFree_v2(reused));
    reused = new_memory(4096);
  }
  CHECK(reused == m);
  OK(cuMemsetD8_v2(m, 4, 4096));
  OK(cuCtxSynchronize());
  say_word(&peer);
  end_peer(&peer);
  CHECK(is_filled(m, 4, 4096));
}

/* A process that exports and is killed: open memory stays, other handles cannot be opened. */
static void export_two(void) {
  use(0);
  CUdeviceptr m[2] = {new_memory(4096), new_memory(4096)};
  for (int i = 0; i < 2; i++) {
    CUipcMemHandle h = export(m[i]);
    OK(cuMemsetD8_v2(m[i], 6, 4096));
    OK(cuCtxSynchronize());
    say(&parent, &h, sizeof h);
  }
  hear_word(&parent);
}

SIMULATED(memory_of_a_process_that_ended_cannot_be_opened_any_more, "", .peer = export_two) {
  struct peer peer;
  CUipcMemHandle h[2];
  CUdeviceptr m, n;
  start_peer(&peer);
  for (int i = 0; i < 2; i++) hear(&peer, &h[i], sizeof h[i]);
  m = open_handle(&h[0]);
  kill_peer(&peer);
  CHECK(is_filled(m, 6, 4096));
  IS(cuIpcOpenMemHandle_v2(&n, h[1], LAZY), CUDA_ERROR_MAP_FAILED);
  OK(cuIpcCloseMemHandle(m));
}

static void close_too_early(void) {
  use(0);
  CUipcMemHandle h = hear_handle();
  CUdeviceptr m = open_handle(&h);
  CUstream s = new_stream();
  close_gate(s);
  OK(cuMemsetD8Async(m, 1, SIZE, s));
  OK(cuIpcCloseMemHandle(m));
  open_gate();
  IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuStreamDestroy_v2(s));
}

SIMULATED(memory_that_is_closed_is_not_used_any_more, "", .peer = close_too_early, .peer_violates = true) {
  struct peer peer;
  CUdeviceptr m = new_memory(SIZE);
  CUipcMemHandle h = export(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  end_peer(&peer);
}

/* Whether a process of this number has a file of this name is found out without opening it. */
SIMULATED(a_handle_of_a_descriptor_that_is_another_file_now_is_refused, "", .peer = export_two) {
  struct peer peer;
  CUipcMemHandle h[2], mixed;
  CUdeviceptr m;
  start_peer(&peer);
  for (int i = 0; i < 2; i++) hear(&peer, &h[i], sizeof h[i]);
  int differing = -1, bytes = 0;
  for (int i = 0; i < 16; i++) /* the descriptor is in the head of the handle */
    if (h[0].reserved[i] != h[1].reserved[i]) differing = i, bytes++;
  SAME(bytes, 1);
  mixed = h[0];
  mixed.reserved[differing] = h[1].reserved[differing];
  IS(cuIpcOpenMemHandle_v2(&m, mixed, LAZY), CUDA_ERROR_MAP_FAILED);
  kill_peer(&peer);
}

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

/* Records behind a gate, which the other process has opened; a second record without. */
static void record_behind_a_gate(void) {
  use(0);
  CUstream s = new_stream();
  CUevent e = hear_event(&parent);
  OK(cuEventQuery(e)); /* never recorded here */
  close_gate(s);
  OK(cuEventRecord(e, s));
  STAYS_PENDING(cuEventQuery(e));
  say_word(&parent);
  hear_word(&parent);
  nap(20); /* work that does not wait comes too early */
  open_gate();
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

BARE(a_record_of_a_process_that_ended_counts_as_done, "", .violates = true, .peer = record_behind_a_gate) {
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

SIMULATED(using_an_event_that_its_maker_destroyed_is_a_violation, "", .peer = use_after_its_end,
          .peer_violates = true) {
  struct peer peer;
  CUevent e = make_event();
  start_peer(&peer);
  say_event(&peer, e);
  hear_word(&peer);
  OK(cuEventDestroy_v2(e));
  say_word(&peer);
  end_peer(&peer);
}
