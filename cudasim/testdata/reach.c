/* Which device reaches which memory. */
#include "rules.h"

enum { size = 1000 };

struct two {
  CUcontext context[2];
  CUstream stream[2];
  CUmemoryPool pool[2];
  CUdeviceptr pooled[2], plain[2];
  unsigned char *pinned;
};

/* Memory of a pool and plain memory on two devices, each filled with its index. */
static struct two set_up(void) {
  struct two t;
  for (int i = 0; i < 2; i++) {
    t.context[i] = use(i);
    t.stream[i] = new_stream();
    CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, i}};
    OK(cuMemPoolCreate(&t.pool[i], &p));
    OK(cuMemAllocFromPoolAsync(&t.pooled[i], size, t.pool[i], t.stream[i]));
    t.plain[i] = new_memory(size);
    OK(cuMemsetD8Async(t.pooled[i], (unsigned char)(i + 1), size, t.stream[i]));
    OK(cuMemsetD8Async(t.plain[i], (unsigned char)(i + 11), size, t.stream[i]));
    OK(cuCtxSynchronize());
  }
  t.pinned = new_pinned(size);
  OK(cuCtxSetCurrent(t.context[0]));
  return t;
}

static void tear_down(struct two t) {
  OK(cuMemFreeHost(t.pinned));
  for (int i = 0; i < 2; i++) {
    OK(cuMemFreeAsync(t.pooled[i], t.stream[i]));
    OK(cuStreamSynchronize(t.stream[i]));
    OK(cuMemPoolDestroy(t.pool[i]));
    OK(cuMemFree_v2(t.plain[i]));
    OK(cuStreamDestroy_v2(t.stream[i]));
  }
}

static void give(CUmemoryPool pool, int device, int flags, CUresult result) {
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  IS(cuMemPoolSetAccess(pool, &access, 1), result);
}

/* Every way to touch device 1's pool with work of device 0. */
static void touch_all(struct two t, CUresult result) {
  unsigned char host[size];
  CUdeviceptr there = t.pooled[1], pinned = (CUdeviceptr)(uintptr_t)t.pinned;
  memset(host, 3, size);
  IS(cuMemcpyAsync(t.pooled[0], there, size, t.stream[0]), result);
  IS(cuMemcpyAsync(there, t.plain[0], size, t.stream[0]), result);
  IS(cuMemcpyAsync(pinned, there, size, t.stream[0]), result);
  IS(cuMemcpyDtoDAsync_v2(t.plain[0], there, size, t.stream[0]), result);
  IS(cuMemcpyDtoDAsync_v2(there, there + size / 2, size / 4, t.stream[0]), result);
  IS(cuMemcpyHtoDAsync_v2(there, t.pinned, size, t.stream[0]), result);
  IS(cuMemcpyDtoHAsync_v2(t.pinned, there, size, t.stream[0]), result);
  IS(cuMemsetD8Async(there, 1, size, t.stream[0]), result);
  OK(cuStreamSynchronize(t.stream[0]));
  IS(cuMemcpy(there, t.plain[0], size), result);
  IS(cuMemcpyDtoD_v2(t.plain[0], there, size), result);
  IS(cuMemcpyHtoD_v2(there, host, size), result);
  IS(cuMemcpyDtoH_v2(host, there, size), result);
  IS(cuMemsetD8_v2(there, 1, size), result);
  OK(cuCtxSynchronize());
}

RULE(memory_of_a_pool_is_reached_from_its_own_device_alone, "devices=2") {
  struct two t = set_up();
  touch_all(t, CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxSetCurrent(t.context[1]));
  CHECK(is_filled(t.pooled[1], 2, size)); /* nothing was done */
  OK(cuCtxSetCurrent(t.context[0]));
  CHECK(is_filled(t.pooled[0], 1, size) && is_filled(t.plain[0], 11, size));
  tear_down(t);
}

RULE(a_pool_gives_other_devices_access, "devices=2") {
  struct two t = set_up();
  give(t.pool[1], 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_SUCCESS);
  touch_all(t, CUDA_SUCCESS); /* also memory of before */
  give(t.pool[1], 0, CU_MEM_ACCESS_FLAGS_PROT_NONE, CUDA_SUCCESS);
  touch_all(t, CUDA_ERROR_INVALID_VALUE);
  tear_down(t);
}

RULE(peer_access_of_contexts_is_not_that_of_pools, "devices=2") {
  struct two t = set_up();
  OK(cuCtxEnablePeerAccess(t.context[1], 0));
  touch_all(t, CUDA_ERROR_INVALID_VALUE);
  tear_down(t);
}

/* The device of the stream decides, not the current context. */
RULE(work_reaches_what_its_stream_s_device_reaches, "devices=2") {
  struct two t = set_up();
  OK(cuMemcpyDtoDAsync_v2(t.plain[1], t.pooled[1], size, t.stream[1]));
  OK(cuStreamSynchronize(t.stream[1]));
  CHECK(is_filled(t.plain[1], 2, size));
  IS(cuMemcpyDtoDAsync_v2(t.plain[1], t.pooled[0], size, t.stream[1]), CUDA_ERROR_INVALID_VALUE);
  tear_down(t);
}

RULE(peer_copies_reach_memory_of_pools, "devices=2") {
  struct two t = set_up();
  OK(cuMemcpyPeerAsync(t.pooled[0], t.context[0], t.pooled[1], t.context[1], size, t.stream[0]));
  OK(cuStreamSynchronize(t.stream[0]));
  CHECK(is_filled(t.pooled[0], 2, size));
  /* Between two places of one device as well, in a stream of another. */
  OK(cuMemcpyPeerAsync(t.pooled[1], t.context[1], t.plain[1], t.context[1], size, t.stream[0]));
  OK(cuStreamSynchronize(t.stream[0]));
  OK(cuMemcpyPeer(t.plain[0], t.context[0], t.pooled[1], t.context[1], size));
  CHECK(is_filled(t.plain[0], 12, size));
  IS(cuMemcpyPeerAsync(t.pooled[0], t.context[1], t.pooled[1], t.context[1], size, t.stream[0]),
     CUDA_ERROR_INVALID_VALUE);
  tear_down(t);
}

RULE(peer_copies_reach_memory_of_pools_without_peer_access, "devices=2,peer=0") {
  struct two t = set_up();
  give(t.pool[1], 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_DEVICE);
  touch_all(t, CUDA_ERROR_INVALID_VALUE);
  OK(cuMemcpyPeerAsync(t.pooled[0], t.context[0], t.pooled[1], t.context[1], size, t.stream[0]));
  OK(cuStreamSynchronize(t.stream[0]));
  CHECK(is_filled(t.pooled[0], 2, size));
  tear_down(t);
}

/* Unified addressing: the driver finds the way. */
RULE(plain_memory_is_copied_from_any_context, "devices=3,peer=0") {
  struct two t = set_up();
  unsigned char host[size];
  use(2);
  memset(host, 3, size);
  OK(cuMemcpyDtoD_v2(t.plain[0], t.plain[1], size));
  CHECK(is_filled(t.plain[0], 12, size));
  OK(cuMemcpyHtoD_v2(t.plain[1], host, size));
  CHECK(is_filled(t.plain[1], 3, size));
  OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)t.pinned, t.plain[0], size, t.stream[1]));
  OK(cuStreamSynchronize(t.stream[1]));
  CHECK(all_bytes(t.pinned, 12, size));
  tear_down(t);
}

RULE(the_access_of_a_pool_s_own_device_is_not_taken_away, "devices=2") {
  struct two t = set_up();
  CUmemLocation own = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  int flags = -1;
  give(t.pool[0], 0, CU_MEM_ACCESS_FLAGS_PROT_NONE, CUDA_ERROR_INVALID_DEVICE);
  give(t.pool[0], 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_SUCCESS);
  give(t.pool[0], 1, 1, CUDA_ERROR_INVALID_VALUE); /* to read alone */
  give(t.pool[0], 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_DEVICE);
  OK(cuMemPoolGetAccess(&flags, t.pool[0], &own));
  SAME(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  tear_down(t);
}

static int access_to(CUdeviceptr memory) {
  int flags = -1;
  OK(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, memory));
  return flags;
}

RULE(access_flags_are_those_of_the_current_context, "devices=2") {
  struct two t = set_up();
  int flags;
  SAME(access_to(t.pooled[0]), 3);
  SAME(access_to(t.plain[0]), 3);
  SAME(access_to((CUdeviceptr)(uintptr_t)t.pinned), 3);
  SAME(access_to(t.pooled[1]), 0);
  SAME(access_to(t.plain[1]), 0);
  OK(cuCtxEnablePeerAccess(t.context[1], 0));
  SAME(access_to(t.plain[1]), 3);
  SAME(access_to(t.pooled[1]), 0);
  give(t.pool[1], 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_SUCCESS);
  SAME(access_to(t.pooled[1]), 3);
  OK(cuCtxSetCurrent(t.context[1]));
  SAME(access_to(t.plain[0]), 0);
  OK(cuCtxSetCurrent(NULL));
  IS(cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, t.plain[0]), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxSetCurrent(t.context[0]));
  tear_down(t);
}
