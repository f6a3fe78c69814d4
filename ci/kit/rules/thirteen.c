/* The functions of CUDA 13. */
#define GROUP "CUDA 13"
#include "rules.h"

static void needs_13(void) {
  int version = 0;
  OK(cuDriverGetVersion(&version));
  if (version < 13000) skip("needs a driver of CUDA 13");
}

static CUmemLocation on_device(int id) { return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, id}; }
static CUmemLocation on_host(void) { return (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}; }

RULE(the_device_of_any_context_can_be_asked_for, MANUAL,
     "cuCtxGetDevice_v2 answers for a context that is not current, and for NULL for the current one.", .needs = TWO) {
  CUdevice device = -1;
  needs_13();
  CUcontext first = use(0);
  use(1);
  OK(cuCtxGetDevice_v2(&device, first));
  SAME(device, 0);
  OK(cuCtxGetDevice_v2(&device, NULL));
  SAME(device, 1);
  OK(cuCtxSetCurrent(NULL));
  IS(cuCtxGetDevice_v2(&device, NULL), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(any_context_can_be_waited_for, MANUAL,
     "cuCtxSynchronize_v2 waits for a context that is not current, and for no other.", .needs = TWO) {
  needs_13();
  CUcontext first = use(0);
  CUstream s = new_stream();
  close_gate(s);
  use(1);
  DOES_NOT_WAIT(cuCtxSynchronize_v2(NULL));
  WAITS(cuCtxSynchronize_v2(first));
  OK(cuCtxSetCurrent(first));
  OK(cuStreamDestroy_v2(s));
}

RULE(the_version_asked_for_selects_the_signature, MANUAL,
     "cuGetProcAddress for CUDA 12 finds the signatures of CUDA 12 where CUDA 13 changed them.") {
  CUdriverProcAddressQueryResult status;
  CUresult (*get)(CUdevice*);
  CUdevice device = -1;
  needs_13();
  OK(cuGetProcAddress_v2("cuCtxGetDevice", (void**)&get, 12090, 0, &status));
  SAME(status, CU_GET_PROC_ADDRESS_SUCCESS);
  IS(get(&device), CUDA_SUCCESS);
  SAME(device, 0);
}

RULE(the_default_pool_of_a_place_is_that_of_the_device, MANUAL,
     "cuMemGetDefaultMemPool of a device's place is the pool of cuDeviceGetDefaultMemPool.", .needs = POOLS) {
  CUmemoryPool pool = NULL, same = NULL;
  CUmemLocation where = on_device(0);
  needs_13();
  OK(cuMemGetDefaultMemPool(&pool, &where, CU_MEM_ALLOCATION_TYPE_PINNED));
  OK(cuDeviceGetDefaultMemPool(&same, 0));
  CHECK(pool == same);
  OK(cuMemGetMemPool(&pool, &where, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK(pool == same);
}

RULE(a_place_can_be_given_another_pool, MANUAL,
     "cuMemSetMemPool makes a pool the current one of its place, until it is destroyed.", .needs = POOLS) {
  CUmemoryPool pool = NULL, now = NULL;
  CUmemLocation where = on_device(0);
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = where};
  needs_13();
  OK(cuMemPoolCreate(&pool, &p));
  OK(cuMemSetMemPool(&where, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
  OK(cuDeviceGetMemPool(&now, 0));
  CHECK(now == pool);
  OK(cuMemPoolDestroy(pool));
  OK(cuMemGetMemPool(&now, &where, CU_MEM_ALLOCATION_TYPE_PINNED));
  CHECK(now != pool);
}

RULE(memory_of_host_pools_is_page_locked, MANUAL,
     "Memory of a pool of the host has the type HOST, and the host writes it.", .needs = POOLS) {
  CUmemoryPool pool = NULL;
  CUmemPoolProps p = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = on_host()};
  CUstream s = new_stream();
  CUdeviceptr m = 0, d = new_memory(4000);
  int type = 0;
  needs_13();
  if (!attribute(ATTRIBUTE_HOST_POOLS_SUPPORTED, 0)) skip("needs pools of the host");
  OK(cuMemPoolCreate(&pool, &p));
  OK(cuMemAllocFromPoolAsync(&m, 4000, pool, s));
  OK(cuStreamSynchronize(s));
  CHECK(host_writes((void*)(uintptr_t)m));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, m));
  SAME(type, CU_MEMORYTYPE_HOST);
  memset((void*)(uintptr_t)m, 7, 4000);
  OK(cuMemcpyHtoDAsync_v2(d, (void*)(uintptr_t)m, 4000, s));
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(d, 7, 4000));
  OK(cuMemFreeAsync(m, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemPoolDestroy(pool));
  OK(cuMemFree_v2(d));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_batch_copies_in_stream_order, MANUAL,
     "cuMemcpyBatchAsync_v2 copies to and from device and host, as work of its stream.") {
  CUstream s = new_stream();
  unsigned char *in = new_pinned(100), *out = new_pinned(100);
  CUdeviceptr a = new_memory(100), b = new_memory(100);
  CUdeviceptr to[] = {a, address(out)}, from[] = {address(in), b};
  size_t sizes[] = {100, 100}, start = 0;
  CUmemcpyAttributes each = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  needs_13();
  memset(in, 1, 100);
  close_gate(s);
  OK(cuMemsetD8Async(b, 2, 100, s));
  DOES_NOT_WAIT(cuMemcpyBatchAsync_v2(to, from, sizes, 2, &each, &start, 1, s));
  STAYS_PENDING(cuStreamQuery(s));
  open_gate();
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(a, 1, 100));
  CHECK(all_bytes(out, 2, 100));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
  OK(cuMemFreeHost(in));
  OK(cuMemFreeHost(out));
  OK(cuStreamDestroy_v2(s));
}

RULE(the_legacy_stream_takes_no_batches, MANUAL, "cuMemcpyBatchAsync_v2 in the legacy stream is an error.") {
  CUdeviceptr a = new_memory(100), b = new_memory(100);
  size_t size = 100, start = 0;
  CUmemcpyAttributes each = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  needs_13();
  REFUSED(cuMemcpyBatchAsync_v2(&a, &b, &size, 1, &each, &start, 1, NULL));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
}
