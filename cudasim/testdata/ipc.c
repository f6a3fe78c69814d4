/* Device memory that two processes use. */
#include "rules.h"

#include <sys/stat.h>
#include <unistd.h>

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

static void say_word(const struct peer *to) { say(to, "w", 1); }

static void hear_word(const struct peer *from) {
  char word;
  hear(from, &word, 1);
}

/* ---- sharing ---- */

/* Reads the bytes that the exporting process wrote, before and after the export, and writes others
 * for it. */
static void read_and_write(void) {
  use(0);
  CUipcMemHandle h = hear_handle();
  CUdeviceptr m = open_handle(&h), start;
  size_t size;
  OK(cuMemGetAddressRange_v2(&start, &size, m + 5));
  CHECK(start == m);
  SAME(size, SIZE);
  CHECK(!host_reads((void *)(uintptr_t)m));
  CHECK(is_filled(m, 1, SIZE));
  OK(cuMemsetD8_v2(m, 2, SIZE / 2));
  OK(cuCtxSynchronize());
  say_word(&parent);
  hear_word(&parent);
  CHECK(is_filled(m, 2, SIZE / 2));
  CHECK(is_filled(m + SIZE / 2, 3, SIZE / 2));
  OK(cuIpcCloseMemHandle(m));
  IS(cuMemcpyDtoD_v2(m, m + 64, 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcCloseMemHandle(m), CUDA_ERROR_INVALID_VALUE);
}

RULE(two_processes_share_the_bytes_of_device_memory, "", .peer = read_and_write) {
  use(0);
  struct peer peer;
  CUdeviceptr m = new_memory(SIZE);
  OK(cuMemsetD8_v2(m, 1, SIZE));
  OK(cuCtxSynchronize());
  CUipcMemHandle h = export(m + 77), same = export(m); /* of the whole allocation */
  CHECK(memcmp(&h, &same, sizeof h) == 0);
  CHECK(!host_reads((void *)(uintptr_t)m));
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  hear_word(&peer);
  CHECK(is_filled(m, 2, SIZE / 2));
  CHECK(is_filled(m + SIZE / 2, 1, SIZE / 2));
  OK(cuMemsetD8_v2(m + SIZE / 2, 3, SIZE / 2));
  OK(cuCtxSynchronize());
  say_word(&peer);
  end_peer(&peer);
  OK(cuMemFree_v2(m));
}

/* The bytes are moved while a stream writes them: none may be lost. */
RULE(memory_may_be_exported_while_it_is_in_use, "") {
  use(0);
  const size_t size = 16 << 20;
  CUstream s = new_stream();
  for (int i = 0; i < 4; i++) {
    CUdeviceptr m = new_memory(size);
    OK(cuMemsetD16Async(m, (unsigned short)(i * 257), size / 2, s)); /* slower than a copy of it */
    nap(1);                                                          /* so that it has begun */
    export(m);
    OK(cuStreamSynchronize(s));
    CHECK(is_filled(m, (unsigned char)i, size));
    OK(cuMemFree_v2(m));
  }
  OK(cuStreamDestroy_v2(s));
}

RULE(work_that_has_not_begun_does_not_hold_up_an_export, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(4096);
  struct gate gate;
  close_gate(&gate, s);
  OK(cuMemsetD8Async(m, 7, 4096, s));
  export(m);
  STAYS_PENDING(cuStreamQuery(s));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 7, 4096));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

/* Memory at the address of memory that was shared is not shared. */
static void keep_open(void) {
  use(0);
  CUipcMemHandle h = hear_handle();
  CUdeviceptr m = open_handle(&h);
  OK(cuMemsetD8_v2(m, 9, 4096));
  OK(cuCtxSynchronize());
  say_word(&parent);
  hear_word(&parent);
  OK(cuMemsetD8_v2(m, 9, 4096));
  OK(cuCtxSynchronize());
  OK(cuIpcCloseMemHandle(m));
}

RULE(freeing_memory_that_another_process_has_open_is_a_violation, "", .violates = true, .peer = keep_open) {
  use(0);
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
  OK(cuMemFree_v2(m));
}

RULE(memory_that_a_killed_process_had_open_is_freed, "", .peer = keep_open) {
  use(0);
  struct peer peer;
  CUdeviceptr m = new_memory(4096);
  CUipcMemHandle h = export(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  hear_word(&peer);
  kill_peer(&peer);
  CHECK(is_filled(m, 9, 4096));
  OK(cuMemFree_v2(m));
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

RULE(memory_of_a_process_that_ended_cannot_be_opened_any_more, "", .peer = export_two) {
  use(0);
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

/* ---- refused calls ---- */

static void try_to_open(void) {
  use(1);
  CUcontext first = use(0), second;
  CUipcMemHandle a, b, gone;
  CUdeviceptr m, again, n;
  hear(&parent, &a, sizeof a);
  hear(&parent, &b, sizeof b);
  hear(&parent, &gone, sizeof gone);
  long long before = reported("device_bytes", 0);
  IS(cuIpcOpenMemHandle_v2(&n, gone, LAZY), CUDA_ERROR_MAP_FAILED);
  IS(cuIpcOpenMemHandle_v2(&n, a, 2), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcOpenMemHandle_v2(NULL, a, LAZY), CUDA_ERROR_INVALID_VALUE);
  m = open_handle(&a);
  SAME(reported("device_bytes", 0), before); /* its maker pays for it */
  again = open_handle(&a);
  CHECK(again == m);                                              /* counted */
  IS(cuIpcOpenMemHandle(&n, a, LAZY), CUDA_ERROR_ALREADY_MAPPED); /* as it was before 11.0 */
  n = open_handle(&b);
  CHECK(n != m);
  IS(cuMemFree_v2(m), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(&gone, m), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcCloseMemHandle(m + 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxCreate_v2(&second, 0, 0)); /* one context per device and process */
  IS(cuIpcOpenMemHandle_v2(&again, a, LAZY), CUDA_ERROR_ALREADY_MAPPED);
  OK(cuCtxSetCurrent(first));
  OK(cuIpcCloseMemHandle(m));
  CHECK(is_filled(m, 1, 64));
  OK(cuIpcCloseMemHandle(m));
  OK(cuIpcCloseMemHandle(n));
  OK(cuCtxSetCurrent(second));
  OK(cuIpcOpenMemHandle(&m, a, LAZY));
  OK(cuCtxDestroy_v2(second)); /* takes it along */
  OK(cuCtxSetCurrent(NULL));
  IS(cuIpcOpenMemHandle_v2(&n, a, LAZY), CUDA_ERROR_INVALID_CONTEXT);
  say_word(&parent);
}

RULE(openings_are_counted_and_of_one_context, "devices=2", .peer = try_to_open) {
  use(0);
  struct peer peer;
  CUdeviceptr m[3];
  CUipcMemHandle h;
  start_peer(&peer);
  for (int i = 0; i < 3; i++) {
    m[i] = new_memory(4096);
    OK(cuMemsetD8_v2(m[i], 1, 4096));
    OK(cuCtxSynchronize());
    h = export(m[i]);
    if (i == 2) OK(cuMemFree_v2(m[i])); /* before it is opened */
    say(&peer, &h, sizeof h);
  }
  hear_word(&peer);
  end_peer(&peer);
  OK(cuMemFree_v2(m[0]));
  OK(cuMemFree_v2(m[1]));
}

static void open_from_another_device(void) {
  use(1);
  CUcontext zero = use(0);
  CUdevice device;
  CUipcMemHandle h = hear_handle();
  CUdeviceptr m = open_handle(&h);
  OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, m));
  SAME(device, 1);
  CUcontext one = use(1);
  OK(cuCtxSetCurrent(zero));
  IS(cuCtxEnablePeerAccess(one, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CHECK(is_filled(m, 5, SIZE));
  OK(cuIpcCloseMemHandle(m));
}

RULE(memory_of_another_device_is_opened_with_peer_access, "devices=2", .peer = open_from_another_device) {
  use(1);
  struct peer peer;
  CUdeviceptr m = new_memory(SIZE);
  OK(cuMemsetD8_v2(m, 5, SIZE));
  OK(cuCtxSynchronize());
  CUipcMemHandle h = export(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  end_peer(&peer);
  OK(cuMemFree_v2(m));
}

static void open_without_peers(void) {
  use(0);
  CUipcMemHandle h = hear_handle();
  CUdeviceptr m;
  IS(cuIpcOpenMemHandle_v2(&m, h, LAZY), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

RULE(memory_of_a_device_without_peer_access_is_not_opened, "devices=2,peer=0", .peer = open_without_peers) {
  use(1);
  struct peer peer;
  CUdeviceptr m = new_memory(SIZE);
  CUipcMemHandle h = export(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  end_peer(&peer);
  OK(cuMemFree_v2(m));
}

static void close_too_early(void) {
  use(0);
  CUipcMemHandle h = hear_handle();
  CUdeviceptr m = open_handle(&h);
  CUstream s = new_stream();
  struct gate gate;
  close_gate(&gate, s);
  OK(cuMemsetD8Async(m, 1, SIZE, s));
  OK(cuIpcCloseMemHandle(m));
  open_gate(&gate);
  IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuStreamDestroy_v2(s));
}

RULE(memory_that_is_closed_is_not_used_any_more, "", .peer = close_too_early, .peer_violates = true) {
  use(0);
  struct peer peer;
  CUdeviceptr m = new_memory(SIZE);
  CUipcMemHandle h = export(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  end_peer(&peer);
  OK(cuMemFree_v2(m));
}

static bool capable(CUdeviceptr m) {
  unsigned value = 0;
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, m));
  return value;
}

RULE(only_memory_of_cuMemAlloc_is_exported, "") {
  use(0);
  CUipcMemHandle h;
  CUdeviceptr pooled, managed, m = new_memory(64);
  unsigned char *pinned = new_pinned(64);
  OK(cuMemAllocAsync(&pooled, 64, NULL));
  OK(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
  CUdeviceptr wrong[] = {0, pooled, managed, (uintptr_t)pinned, (uintptr_t)&h, m + 64};
  for (int i = 0; i < 6; i++) IS(cuIpcGetMemHandle(&h, wrong[i]), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(NULL, m), CUDA_ERROR_INVALID_VALUE);
  CHECK(capable(m) && !capable(pooled) && !capable(managed) && !capable((uintptr_t)pinned));
  IS(cuIpcCloseMemHandle(m), CUDA_ERROR_INVALID_VALUE); /* it was not opened */
  OK(cuMemFree_v2(m));
  OK(cuMemFree_v2(managed));
  OK(cuMemFreeHost(pinned));
  OK(cuMemFreeAsync(pooled, NULL));
  OK(cuStreamSynchronize(NULL));
}

RULE(a_process_does_not_open_its_own_memory, "") {
  use(0);
  CUdeviceptr m = new_memory(64), n;
  CUipcMemHandle h = export(m), garbage = {"garbage"};
  IS(cuIpcOpenMemHandle_v2(&n, h, LAZY), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuIpcOpenMemHandle(&n, h, LAZY), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuIpcOpenMemHandle_v2(&n, garbage, LAZY), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(m));
}

/* Whether a process of this number has a file of this name is found out without opening it. */
RULE(a_handle_of_a_descriptor_that_is_another_file_now_is_refused, "", .peer = export_two) {
  use(0);
  struct peer peer;
  CUipcMemHandle h[2], mixed;
  CUdeviceptr m;
  start_peer(&peer);
  for (int i = 0; i < 2; i++) hear(&peer, &h[i], sizeof h[i]);
  int differing = -1, bytes = 0;
  for (int i = 0; i < 16; i++) /* the descriptor is in the head of the handle */
    if (h[0].bytes[i] != h[1].bytes[i]) differing = i, bytes++;
  SAME(bytes, 1);
  mixed = h[0];
  mixed.bytes[differing] = h[1].bytes[differing];
  IS(cuIpcOpenMemHandle_v2(&m, mixed, LAZY), CUDA_ERROR_MAP_FAILED);
  kill_peer(&peer);
}
