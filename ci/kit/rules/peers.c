/* Several devices. */
#define GROUP "several devices"
#include "rules.h"

enum { SIZE = 20000 };

struct pair {
  CUcontext context[2];
  CUdeviceptr memory[2], pooled[2];
  CUstream stream[2];
  CUmemoryPool pool[2];
  unsigned char* pinned;
};

/* Memory on two devices, filled with their indexes and 1, and current device 0. */
static struct pair two_devices(bool pools) {
  struct pair p;
  memset(&p, 0, sizeof p);
  for (int i = 0; i < 2; i++) {
    p.context[i] = use(i);
    p.memory[i] = new_memory(SIZE);
    p.stream[i] = new_stream();
    OK(cuMemsetD8Async(p.memory[i], (unsigned char)(i + 1), SIZE, p.stream[i]));
    if (pools) {
      p.pool[i] = new_pool((CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, i}, CU_MEM_ALLOCATION_TYPE_PINNED);
      OK(cuMemAllocFromPoolAsync(&p.pooled[i], SIZE, p.pool[i], p.stream[i]));
      made(MEMORY, (void*)p.pooled[i]);
      OK(cuMemsetD8Async(p.pooled[i], (unsigned char)(i + 1), SIZE, p.stream[i]));
    }
    OK(cuStreamSynchronize(p.stream[i]));
  }
  OK(cuCtxSetCurrent(p.context[0]));
  p.pinned = new_pinned(SIZE);
  return p;
}

static bool filled_on(struct pair p, int device, CUdeviceptr memory, unsigned char value) {
  OK(cuCtxSetCurrent(p.context[device]));
  bool is = is_filled(memory, value, SIZE);
  OK(cuCtxSetCurrent(p.context[0]));
  return is;
}

RULE(copies_go_from_device_to_device, MANUAL,
     "cuMemcpyPeer copies from one device to another, with peer access or without.", .needs = TWO) {
  struct pair p = two_devices(false);
  IS(cuMemcpyPeer(p.memory[1], p.context[1], p.memory[0], p.context[0], SIZE), CUDA_SUCCESS);
  OK(cuCtxSynchronize());
  CHECK(filled_on(p, 1, p.memory[1], 1));
}

RULE(asynchronous_copies_go_from_device_to_device, MANUAL,
     "cuMemcpyPeerAsync is work of its stream, and returns before it is done.", .needs = TWO) {
  struct pair p = two_devices(false);
  close_gate(p.stream[0]);
  DOES_NOT_WAIT(cuMemcpyPeerAsync(p.memory[1], p.context[1], p.memory[0], p.context[0], SIZE, p.stream[0]));
  STAYS_PENDING(cuStreamQuery(p.stream[0]));
  open_gate();
  OK(cuStreamSynchronize(p.stream[0]));
  CHECK(filled_on(p, 1, p.memory[1], 1));
}

RULE(general_copies_go_from_device_to_device, READING,
     "cuMemcpyAsync copies plain memory of one device to another, without peer access as well.", .needs = TWO) {
  struct pair p = two_devices(false);
  IS(cuMemcpyAsync(p.memory[1], p.memory[0], SIZE, p.stream[0]), CUDA_SUCCESS);
  OK(cuStreamSynchronize(p.stream[0]));
  CHECK(filled_on(p, 1, p.memory[1], 1));
  IS(cuMemcpyDtoDAsync_v2(p.memory[0], p.memory[1], SIZE, p.stream[1]), CUDA_SUCCESS);
  OK(cuStreamSynchronize(p.stream[1]));
}

RULE(memory_of_another_device_is_copied_to_and_from_the_host, READING,
     "cuMemcpyHtoD and DtoH take plain memory of a device that is not current, without peer access as well.",
     .needs = TWO) {
  struct pair p = two_devices(false);
  static unsigned char bytes[SIZE];
  memset(bytes, 3, SIZE);
  IS(cuMemcpyHtoD_v2(p.memory[1], bytes, SIZE), CUDA_SUCCESS);
  memset(bytes, 0, SIZE);
  IS(cuMemcpyDtoH_v2(bytes, p.memory[1], SIZE), CUDA_SUCCESS);
  CHECK(all_bytes(bytes, 3, SIZE));
}

RULE(a_peer_copy_does_not_wait, MANUAL,
     "cuMemcpyPeer returns before it is done, and comes after earlier work of both contexts.", .needs = TWO) {
  struct pair p = two_devices(false);
  OK(cuCtxSetCurrent(p.context[1]));
  CUstream before = new_blocking_stream();
  close_gate(before);
  OK(cuMemsetD8Async(p.memory[1], 9, SIZE, before));
  OK(cuCtxSetCurrent(p.context[0]));
  DOES_NOT_WAIT(cuMemcpyPeer(p.memory[0], p.context[0], p.memory[1], p.context[1], SIZE));
  STAYS_PENDING(cuStreamQuery(NULL));
  open_gate();
  OK(cuCtxSynchronize());
  CHECK(filled_on(p, 0, p.memory[0], 9));
}

RULE(a_peer_copy_comes_before_later_work_of_both_contexts, MANUAL,
     "Later work of the context of the source waits for cuMemcpyPeer.", .needs = TWO) {
  struct pair p = two_devices(false);
  OK(cuCtxSetCurrent(p.context[1]));
  CUstream before = new_blocking_stream(), after = new_blocking_stream();
  close_gate(before);
  OK(cuCtxSetCurrent(p.context[0]));
  OK(cuMemcpyPeer(p.memory[0], p.context[0], p.memory[1], p.context[1], SIZE));
  OK(cuCtxSetCurrent(p.context[1]));
  OK(cuMemsetD8Async(p.memory[1], 8, SIZE, after));
  STAYS_PENDING(cuStreamQuery(after));
  open_gate();
  OK(cuStreamSynchronize(after));
  CHECK(filled_on(p, 0, p.memory[0], 2));
}

RULE(peer_copies_stay_in_their_allocations, READING, "cuMemcpyPeer of more than an allocation has is INVALID_VALUE.",
     .needs = TWO, .alone = true) {
  struct pair p = two_devices(false);
  IS(cuMemcpyPeer(p.memory[1], p.context[1], p.memory[0], p.context[0], (size_t)1 << 40), CUDA_ERROR_INVALID_VALUE);
}

RULE(peer_copies_check_their_contexts, READING, "cuMemcpyPeer of a context that is none is INVALID_CONTEXT.",
     .needs = TWO, .alone = true) {
  struct pair p = two_devices(false);
  static long long garbage[4096];
  IS(cuMemcpyPeer(p.memory[1], (CUcontext)(void*)garbage, p.memory[0], p.context[0], SIZE), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(a_device_is_no_peer_of_its_own, READING,
     "cuDeviceCanAccessPeer of one device is 0; of an unknown one INVALID_DEVICE.") {
  int can = 1;
  IS(cuDeviceCanAccessPeer(&can, 0, 0), CUDA_SUCCESS);
  SAME(can, 0);
  IS(cuDeviceCanAccessPeer(&can, 0, 77), CUDA_ERROR_INVALID_DEVICE);
}

RULE(peer_access_is_switched_on_once, MANUAL,
     "cuCtxEnablePeerAccess twice is ALREADY_ENABLED; a disable without an enable is NOT_ENABLED.", .needs = PEERS,
     .alone = true) {
  CUcontext a = use(0), b = use(1);
  IS(cuCtxDisablePeerAccess(a), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  IS(cuCtxEnablePeerAccess(a, 0), CUDA_SUCCESS);
  IS(cuCtxEnablePeerAccess(a, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  IS(cuCtxEnablePeerAccess(a, 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxSetCurrent(a)); /* the other way is another matter */
  IS(cuCtxDisablePeerAccess(b), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  OK(cuCtxSetCurrent(b));
  IS(cuCtxDisablePeerAccess(a), CUDA_SUCCESS);
  IS(cuCtxDisablePeerAccess(a), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

static void needs_strangers(void) {
  int can = 0;
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  if (can) skip("the devices have peer access");
}

RULE(without_peer_access_it_is_not_switched_on, MANUAL,
     "cuCtxEnablePeerAccess is PEER_ACCESS_UNSUPPORTED where cuDeviceCanAccessPeer is 0.", .needs = TWO,
     .alone = true) {
  needs_strangers();
  CUcontext other = use(1);
  use(0);
  IS(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

RULE(a_context_is_no_peer_of_its_own, READING, "cuCtxEnablePeerAccess of the current context is an error.",
     .alone = true) {
  REFUSED(cuCtxEnablePeerAccess(use(0), 0));
}

/* Ways to touch device 1's pool with work of device 0. */
static void touch(struct pair p, CUresult want) {
  IS(cuMemcpyAsync(p.memory[0], p.pooled[1], SIZE, p.stream[0]), want);
  IS(cuMemcpyAsync(p.pooled[1], p.memory[0], SIZE, p.stream[0]), want);
  IS(cuMemcpyDtoDAsync_v2(p.memory[0], p.pooled[1], SIZE, p.stream[0]), want);
  IS(cuMemcpyDtoDAsync_v2(p.pooled[1], p.pooled[1] + SIZE / 2, SIZE / 4, p.stream[0]), want);
  IS(cuMemcpyHtoDAsync_v2(p.pooled[1], p.pinned, SIZE, p.stream[0]), want);
  IS(cuMemcpyDtoHAsync_v2(p.pinned, p.pooled[1], SIZE, p.stream[0]), want);
  IS(cuMemsetD8Async(p.pooled[1], 1, SIZE, p.stream[0]), want);
  IS(cuStreamSynchronize(p.stream[0]), CUDA_SUCCESS);
  IS(cuMemcpy(p.pooled[1], p.memory[0], SIZE), want);
  IS(cuMemcpyDtoD_v2(p.memory[0], p.pooled[1], SIZE), want);
  IS(cuMemcpyHtoD_v2(p.pooled[1], p.pinned, SIZE), want);
  IS(cuMemcpyDtoH_v2(p.pinned, p.pooled[1], SIZE), want);
  IS(cuMemsetD8_v2(p.pooled[1], 1, SIZE), want);
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void give(CUmemoryPool pool, int device, int flags, CUresult want) {
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  IS(cuMemPoolSetAccess(pool, &access, 1), want);
}

RULE(memory_of_a_pool_is_reached_from_its_own_device_alone, READING,
     "Copies and fills in a stream of a device that the pool did not give access are INVALID_VALUE.",
     .needs = TWO | POOLS, .alone = true) {
  struct pair p = two_devices(true);
  touch(p, CUDA_ERROR_INVALID_VALUE);
  CHECK(filled_on(p, 1, p.pooled[1], 2));
}

RULE(a_pool_gives_other_devices_access, MANUAL,
     "cuMemPoolSetAccess lets another device use memory of the pool, of earlier allocations as well.",
     .needs = PEERS | POOLS, .alone = true) {
  struct pair p = two_devices(true);
  give(p.pool[1], 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_SUCCESS);
  touch(p, CUDA_SUCCESS);
}

RULE(a_pool_takes_access_away, MANUAL, "cuMemPoolSetAccess with PROT_NONE takes the access of another device away.",
     .needs = PEERS | POOLS, .alone = true) {
  struct pair p = two_devices(true);
  give(p.pool[1], 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_SUCCESS);
  give(p.pool[1], 0, CU_MEM_ACCESS_FLAGS_PROT_NONE, CUDA_SUCCESS);
  touch(p, CUDA_ERROR_INVALID_VALUE);
}

RULE(peer_access_of_contexts_is_not_that_of_pools, MANUAL, "cuCtxEnablePeerAccess gives no access to memory of pools.",
     .needs = PEERS | POOLS, .alone = true) {
  struct pair p = two_devices(true);
  OK(cuCtxEnablePeerAccess(p.context[1], 0));
  touch(p, CUDA_ERROR_INVALID_VALUE);
}

RULE(peer_copies_reach_memory_of_pools, READING,
     "cuMemcpyPeer and cuMemcpyPeerAsync need no access to memory of pools.", .needs = TWO | POOLS, .alone = true) {
  struct pair p = two_devices(true);
  IS(cuMemcpyPeerAsync(p.pooled[0], p.context[0], p.pooled[1], p.context[1], SIZE, p.stream[0]), CUDA_SUCCESS);
  OK(cuStreamSynchronize(p.stream[0]));
  CHECK(filled_on(p, 0, p.pooled[0], 2));
  IS(cuMemcpyPeer(p.memory[0], p.context[0], p.pooled[1], p.context[1], SIZE), CUDA_SUCCESS);
  OK(cuCtxSynchronize());
  CHECK(filled_on(p, 0, p.memory[0], 2));
  /* Between two places of one device as well, in a stream of another. */
  IS(cuMemcpyPeerAsync(p.pooled[1], p.context[1], p.memory[1], p.context[1], SIZE, p.stream[0]), CUDA_SUCCESS);
  OK(cuStreamSynchronize(p.stream[0]));
  IS(cuMemcpyPeerAsync(p.pooled[0], p.context[1], p.pooled[1], p.context[1], SIZE, p.stream[0]),
     CUDA_ERROR_INVALID_VALUE);
}

RULE(work_reaches_what_its_stream_s_device_reaches, READING,
     "The device of the stream decides about the access to memory of a pool, not the current context.",
     .needs = TWO | POOLS, .alone = true) {
  struct pair p = two_devices(true);
  IS(cuMemcpyDtoDAsync_v2(p.memory[1], p.pooled[1], SIZE, p.stream[1]), CUDA_SUCCESS);
  OK(cuStreamSynchronize(p.stream[1]));
  IS(cuMemcpyDtoDAsync_v2(p.memory[1], p.pooled[0], SIZE, p.stream[1]), CUDA_ERROR_INVALID_VALUE);
}

RULE(access_of_a_pool_is_told, MANUAL,
     "cuMemPoolGetAccess is READWRITE for the pool's device, and NONE for others at first.", .needs = TWO | POOLS) {
  struct pair p = two_devices(true);
  CUmemLocation own = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, other = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  int flags = -1;
  OK(cuMemPoolGetAccess(&flags, p.pool[0], &own));
  SAME(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  OK(cuMemPoolGetAccess(&flags, p.pool[0], &other));
  SAME(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

RULE(the_access_of_a_pool_s_own_device_is_not_taken_away, READING,
     "cuMemPoolSetAccess with PROT_NONE for the pool's own device is INVALID_DEVICE.", .needs = POOLS, .alone = true) {
  CUmemoryPool pool = new_pool((CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ALLOCATION_TYPE_PINNED);
  give(pool, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE, CUDA_ERROR_INVALID_DEVICE);
  give(pool, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_SUCCESS);
}

RULE(a_pool_gives_no_access_without_peer_access, READING,
     "cuMemPoolSetAccess for a device without peer access is INVALID_DEVICE.", .needs = TWO | POOLS, .alone = true) {
  needs_strangers();
  struct pair p = two_devices(true);
  give(p.pool[1], 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_DEVICE);
  touch(p, CUDA_ERROR_INVALID_VALUE);
}

RULE(access_of_pools_is_checked, READING,
     "cuMemPoolSetAccess for an unknown device is INVALID_DEVICE, and to read alone INVALID_VALUE.",
     .needs = PEERS | POOLS, .alone = true) {
  struct pair p = two_devices(true);
  give(p.pool[0], 1, CU_MEM_ACCESS_FLAGS_PROT_READ, CUDA_ERROR_INVALID_VALUE);
  give(p.pool[0], 77, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_DEVICE);
}

static int access_to(CUdeviceptr memory) {
  int flags = -1;
  OK(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory));
  return flags;
}

RULE(access_flags_are_those_of_the_current_context, MANUAL,
     "The pointer attribute ACCESS_FLAGS is what the current device may do: 3, or 0 without peer access.",
     .needs = PEERS | POOLS, .alone = true) {
  struct pair p = two_devices(true);
  SAME(access_to(p.memory[0]), 3);
  SAME(access_to(p.pooled[0]), 3);
  SAME(access_to(p.memory[1]), 0);
  SAME(access_to(p.pooled[1]), 0);
  OK(cuCtxEnablePeerAccess(p.context[1], 0));
  SAME(access_to(p.memory[1]), 3);
  SAME(access_to(p.pooled[1]), 0);
  give(p.pool[1], 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_SUCCESS);
  SAME(access_to(p.pooled[1]), 3);
  OK(cuCtxSetCurrent(p.context[1]));
  SAME(access_to(p.memory[0]), 0); /* the other way is another matter */
  OK(cuCtxSetCurrent(NULL));
  int flags;
  IS(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, p.memory[0]), CUDA_ERROR_INVALID_CONTEXT);
}
