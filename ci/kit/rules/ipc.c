/* Memory of two processes. */
#define GROUP "two processes"
#include "rules.h"

enum { SIZE = 100000, LAZY = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS };

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

RULE(memory_may_be_exported_while_it_is_in_use, READING,
     "cuIpcGetMemHandle of memory that a stream writes loses no bytes.", .needs = IPC) {
  const size_t size = 16 << 20;
  for (int i = 0; i < 4; i++) {
    CUdeviceptr m = new_memory(size);
    OK(cuMemsetD16Async(m, (unsigned short)(i * 257), size / 2, b)); /* slower than a copy of it */
    nap(1);                                                          /* so that it has begun */
    handle_of(m);
    OK(cuStreamSynchronize(b));
    CHECK(is_filled(m, (unsigned char)i, size));
    OK(cuMemFree_v2(m));
  }
}

RULE(pending_work_does_not_hold_up_an_export, READING, "cuIpcGetMemHandle returns while work on the memory is pending.",
     .needs = IPC) {
  CUipcMemHandle h;
  CUdeviceptr m = new_memory(4096);
  close_gate(a);
  OK(cuMemsetD8Async(m, 7, 4096, a));
  DOES_NOT_WAIT(cuIpcGetMemHandle(&h, m));
  STAYS_PENDING(cuStreamQuery(a));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 7, 4096));
}

/* Hands the memory to another process, which runs the rule's function peer. */
static void lend(CUdeviceptr m) {
  struct peer peer;
  CUipcMemHandle h = handle_of(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  end_peer(&peer);
}

static void keep_open(void) {
  CUdeviceptr m = hear_memory();
  fill(m, 9, 4096);
  say_word(&parent);
  hear_word(&parent);
}

RULE(memory_that_a_killed_process_had_open_is_freed, READING,
     "Memory that a process had open when it was killed is usable, and is freed.", .needs = IPC, .peer = keep_open,
     .alone = true) {
  struct peer peer;
  CUdeviceptr m = new_memory(4096);
  CUipcMemHandle h = handle_of(m);
  start_peer(&peer);
  say(&peer, &h, sizeof h);
  hear_word(&peer);
  kill_peer(&peer);
  CHECK(is_filled(m, 9, 4096));
  IS(cuMemFree_v2(m), CUDA_SUCCESS);
}

static void open_in_two_contexts(void) {
  CUipcMemHandle h, again;
  CUcontext first = use(0), second = NULL;
  CUdeviceptr m = 0, n;
  hear(&parent, &h, sizeof h);
  OK(cuIpcOpenMemHandle_v2(&m, h, LAZY));
  IS(cuIpcOpenMemHandle(&n, h, LAZY), CUDA_ERROR_ALREADY_MAPPED); /* which was so before 11.0 */
  IS(cuIpcGetMemHandle(&again, m), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxCreate_v2(&second, 0, 0));
  IS(cuIpcOpenMemHandle_v2(&n, h, LAZY), CUDA_ERROR_ALREADY_MAPPED);
  OK(cuCtxSetCurrent(first));
  OK(cuIpcCloseMemHandle(m));
  OK(cuCtxSetCurrent(second));
  IS(cuIpcOpenMemHandle(&m, h, LAZY), CUDA_SUCCESS);
  OK(cuCtxDestroy_v2(second)); /* takes it along */
  OK(cuCtxSetCurrent(NULL));
  IS(cuIpcOpenMemHandle_v2(&n, h, LAZY), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(memory_is_opened_in_one_context_of_a_process, MANUAL,
     "cuIpcOpenMemHandle in another context of the device, or by the function before 11.0, is ALREADY_MAPPED.",
     .needs = IPC, .peer = open_in_two_contexts, .alone = true) {
  lend(new_memory(SIZE));
}

static void open_from_another_device(void) {
  CUcontext one = use(1), zero = use(0);
  CUdevice device = -1;
  CUdeviceptr m = hear_memory();
  OK(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, m));
  SAME(device, 1);
  OK(cuCtxSetCurrent(zero));
  IS(cuCtxEnablePeerAccess(one, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CHECK(is_filled(m, 5, SIZE));
}

RULE(memory_of_another_device_is_opened_with_peer_access, MANUAL,
     "cuIpcOpenMemHandle of memory of another device switches peer access on.", .needs = PEERS | IPC,
     .peer = open_from_another_device, .alone = true) {
  use(1);
  CUdeviceptr m = new_memory(SIZE);
  fill(m, 5, SIZE);
  lend(m);
}

static void open_without_access(void) {
  CUipcMemHandle h;
  CUdeviceptr m;
  hear(&parent, &h, sizeof h);
  IS(cuIpcOpenMemHandle_v2(&m, h, LAZY), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

RULE(memory_of_a_device_without_peer_access_is_not_opened, MANUAL,
     "cuIpcOpenMemHandle of memory of a device without peer access is PEER_ACCESS_UNSUPPORTED.", .needs = TWO | IPC,
     .peer = open_without_access, .alone = true) {
  int can = 0;
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  if (can) skip("the devices have peer access");
  use(1);
  lend(new_memory(SIZE));
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
  lend(new_memory(SIZE));
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
  CUdeviceptr m = new_memory(SIZE);
  fill(m, 1, SIZE);
  lend(m);
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
  lend(new_memory(SIZE));
}

RULE(a_process_does_not_open_its_own_memory, SEEN,
     "cuIpcOpenMemHandle in the process that made the handle is INVALID_CONTEXT.", .needs = IPC, .alone = true) {
  CUdeviceptr m = new_memory(SIZE), n;
  CUipcMemHandle h = handle_of(m);
  IS(cuIpcOpenMemHandle_v2(&n, h, LAZY), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuIpcOpenMemHandle(&n, h, LAZY), CUDA_ERROR_INVALID_CONTEXT);
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
  CUdeviceptr m = new_memory(64);
  IS(cuIpcGetMemHandle(&h, pooled), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(&h, managed), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(&h, pinned), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(&h, pageable), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(&h, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcGetMemHandle(NULL, m), CUDA_ERROR_INVALID_VALUE);
  IS(cuIpcCloseMemHandle(m), CUDA_ERROR_INVALID_VALUE); /* it was not opened */
}

static bool capable(CUdeviceptr m) {
  unsigned value = 0;
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, m));
  return (value & 0xff) != 0;
}

RULE(memory_tells_whether_it_can_be_exported, MANUAL,
     "IS_LEGACY_CUDA_IPC_CAPABLE is true of memory of cuMemAlloc, and not of page-locked memory.", .needs = IPC) {
  CHECK(capable(m));
  CHECK(!capable(address(p)));
}
