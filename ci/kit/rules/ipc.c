/* Memory and events of two processes. */
#define GROUP "two processes"
#include "rules.h"

enum {
  SIZE = 100000,
  LAZY = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS,
  FLAGS = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING
};

static CUipcMemHandle handle_of(CUdeviceptr m) {
  CUipcMemHandle h;
  OK(cuIpcGetMemHandle(&h, m));
  return h;
}

static CUdeviceptr hear_memory(void) {
  CUipcMemHandle h;
  CUdeviceptr m = 0;
  hear(&parent, &h, sizeof h);
  OK(cuIpcOpenMemHandle_v2(&m, h, LAZY));
  return m;
}

static void read_and_write(void) {
  CUdeviceptr m = hear_memory(), start = 0;
  size_t size = 0;
  OK(cuMemGetAddressRange_v2(&start, &size, m + 5));
  CHECK(start == m);
  CHECK(is_filled(m, 1, SIZE));
  fill(m, 2, SIZE / 2);
  say_word(&parent);
  hear_word(&parent);
  CHECK(is_filled(m, 2, SIZE / 2));
  CHECK(is_filled(m + SIZE / 2, 3, SIZE / 2));
  IS(cuIpcCloseMemHandle(m), CUDA_SUCCESS);
}

RULE(two_processes_share_the_bytes_of_device_memory, MANUAL,
     "Memory of cuMemAlloc is opened by another process by a handle, and both see what either writes.", .needs = IPC,
     .peer = read_and_write, .alone = true) {
  struct peer peer;
  CUdeviceptr m = new_memory(SIZE);
  fill(m, 1, SIZE);
  CUipcMemHandle h = handle_of(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  hear_word(&peer);
  CHECK(is_filled(m, 2, SIZE / 2));
  CHECK(is_filled(m + SIZE / 2, 1, SIZE / 2));
  fill(m + SIZE / 2, 3, SIZE / 2);
  say_word(&peer);
  end_peer(&peer);
  IS(cuMemFree_v2(m), CUDA_SUCCESS);
}

RULE(a_handle_is_of_the_whole_allocation, READING,
     "cuIpcGetMemHandle of an address inside is the handle of the allocation.", .needs = IPC, .alone = true) {
  CUdeviceptr m = new_memory(SIZE);
  CUipcMemHandle h = handle_of(m + 77), same = handle_of(m);
  CHECK(memcmp(&h, &same, sizeof h) == 0);
}

static void close_twice(void) {
  CUdeviceptr m = hear_memory();
  char byte;
  IS(cuIpcCloseMemHandle(m + 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFree_v2(m), CUDA_ERROR_INVALID_VALUE);
  OK(cuIpcCloseMemHandle(m));
  IS(cuMemcpyDtoH_v2(&byte, m, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcCloseMemHandle(m), CUDA_ERROR_INVALID_VALUE);
}

RULE(opened_memory_is_closed_once, READING,
     "Opened memory is not freed by cuMemFree; after cuIpcCloseMemHandle it is INVALID_VALUE, as is a second close.",
     .needs = IPC, .peer = close_twice, .alone = true) {
  struct peer peer;
  CUdeviceptr m = new_memory(SIZE);
  CUipcMemHandle h = handle_of(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  end_peer(&peer);
}

static void open_twice(void) {
  CUipcMemHandle h;
  CUdeviceptr m = 0, again = 1;
  hear(&parent, &h, sizeof h);
  OK(cuIpcOpenMemHandle_v2(&m, h, LAZY));
  IS(cuIpcOpenMemHandle_v2(&again, h, LAZY), CUDA_SUCCESS);
  CHECK(again == m);
  OK(cuIpcCloseMemHandle(m));
  CHECK(is_filled(m, 1, SIZE));
  IS(cuIpcCloseMemHandle(m), CUDA_SUCCESS);
}

RULE(openings_are_counted, MANUAL, "A second opening gives the same address, and each is closed.", .needs = IPC,
     .peer = open_twice, .alone = true) {
  struct peer peer;
  CUdeviceptr m = new_memory(SIZE);
  fill(m, 1, SIZE);
  CUipcMemHandle h = handle_of(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  end_peer(&peer);
}

static void open_freed(void) {
  CUipcMemHandle h;
  CUdeviceptr m;
  hear(&parent, &h, sizeof h);
  IS_ONE_OF(cuIpcOpenMemHandle_v2(&m, h, LAZY), CUDA_ERROR_MAP_FAILED, CUDA_ERROR_INVALID_VALUE);
}

RULE(freed_memory_is_not_opened, READING, "cuIpcOpenMemHandle of memory that was freed is MAP_FAILED.", .needs = IPC,
     .peer = open_freed, .alone = true) {
  struct peer peer;
  CUdeviceptr m = new_memory(64 << 20);
  CUipcMemHandle h = handle_of(m);
  OK(cuMemFree_v2(m));
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  end_peer(&peer);
}

static void open_with_flags(void) {
  CUipcMemHandle h;
  CUdeviceptr m;
  hear(&parent, &h, sizeof h);
  IS(cuIpcOpenMemHandle_v2(&m, h, 2), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcOpenMemHandle_v2(NULL, h, LAZY), CUDA_ERROR_INVALID_VALUE);
}

RULE(flags_of_an_opening_are_checked, READING,
     "cuIpcOpenMemHandle of unknown flags, or without a place, is INVALID_VALUE.", .needs = IPC,
     .peer = open_with_flags, .alone = true) {
  struct peer peer;
  CUdeviceptr m = new_memory(SIZE);
  CUipcMemHandle h = handle_of(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  end_peer(&peer);
}

RULE(a_process_does_not_open_its_own_memory, SEEN,
     "cuIpcOpenMemHandle in the process that made the handle is INVALID_CONTEXT.", .needs = IPC, .alone = true) {
  CUdeviceptr m = new_memory(SIZE), n;
  CUipcMemHandle h = handle_of(m);
  IS(cuIpcOpenMemHandle_v2(&n, h, LAZY), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(garbage_is_no_handle, READING, "cuIpcOpenMemHandle of a handle that no process made is INVALID_VALUE.",
     .needs = IPC, .alone = true) {
  CUipcMemHandle garbage = {"garbage"};
  CUdeviceptr m;
  IS(cuIpcOpenMemHandle_v2(&m, garbage, LAZY), CUDA_ERROR_INVALID_VALUE);
}

RULE(only_memory_of_cuMemAlloc_is_exported, READING,
     "cuIpcGetMemHandle of memory of pools, of managed, page-locked and pageable memory is INVALID_VALUE.",
     .needs = IPC | POOLS | MANAGED, .alone = true) {
  CUipcMemHandle h;
  CUdeviceptr pooled;
  OK(cuMemAllocAsync(&pooled, 64, NULL));
  OK(cuStreamSynchronize(NULL));
  CUdeviceptr managed = new_managed(64), pinned = address(new_pinned(64)), pageable = address(new_pages(4096));
  IS(cuIpcGetMemHandle(&h, pooled), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(&h, managed), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(&h, pinned), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(&h, pageable), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(&h, 0), CUDA_ERROR_INVALID_VALUE);
}

static bool capable(CUdeviceptr m) {
  unsigned value = 0;
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, m));
  return (value & 0xff) != 0;
}

RULE(memory_tells_whether_it_can_be_exported, MANUAL,
     "IS_LEGACY_CUDA_IPC_CAPABLE is true of memory of cuMemAlloc, and not of page-locked memory.", .needs = IPC) {
  CUdeviceptr m = new_memory(64);
  unsigned char* pinned = new_pinned(64);
  CHECK(capable(m));
  CHECK(!capable(address(pinned)));
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree_v2(m));
}

/* ---- events ---- */

static CUevent new_shared_event(void) {
  CUevent e = NULL;
  OK(cuEventCreate(&e, FLAGS));
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
  CUevent e = begin(&peer), mine = new_event();
  CUstream s = new_stream();
  OK(cuStreamWaitEvent(s, e, 0));
  OK(cuEventRecord(mine, s));
  STAYS_PENDING(cuEventQuery(mine));
  say_word(&peer);
  IS(cuEventSynchronize(mine), CUDA_SUCCESS);
  finish(&peer, e);
}

RULE(the_latest_record_of_any_process_counts, READING, "The latest record of a shared event counts, of any process.",
     .needs = IPC, .peer = record_behind_a_gate, .alone = true) {
  struct peer peer;
  CUevent e = begin(&peer);
  CUstream s = new_stream(), waiting = new_stream();
  OK(cuStreamWaitEvent(waiting, e, 0)); /* for the other's */
  OK(cuEventRecord(e, s));
  DOES_NOT_WAIT(cuEventSynchronize(e));
  STAYS_PENDING(cuStreamQuery(waiting));
  say_word(&peer);
  OK(cuStreamSynchronize(waiting));
  finish(&peer, e);
}

RULE(only_events_that_are_made_so_are_exported, READING,
     "cuIpcGetEventHandle of an event without CU_EVENT_INTERPROCESS is INVALID_HANDLE.", .needs = IPC, .alone = true) {
  CUipcEventHandle h;
  IS(cuIpcGetEventHandle(&h, new_event()), CUDA_ERROR_INVALID_HANDLE);
}
