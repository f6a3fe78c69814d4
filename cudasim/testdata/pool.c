/* Memory of pools that is used before it is there or after its free, and the fault that follows. */
#include "simulator.h"

WITH_OBJECTS(using_pool_memory_before_it_is_there_is_a_violation, "", .violates = true) {
  close_gate(a);
  CUdeviceptr m = allocate(1000, a);
  if (cuMemsetD8Async(m, 7, 1000, b) == CUDA_SUCCESS) OK(cuStreamSynchronize(b));
  open_gate();
  OK(cuMemFreeAsync(m, a));
  OK(cuStreamSynchronize(a));
}

WITH_OBJECTS(using_pool_memory_after_its_free_is_a_violation, "", .violates = true) {
  CUdeviceptr m = allocate(1000, a);
  OK(cuStreamSynchronize(a));
  close_gate(a);
  OK(cuMemsetD8Async(m, 7, 1000, a));
  OK(cuMemFreeAsync(m, b)); /* b does not wait for a */
  OK(cuStreamSynchronize(b));
  open_gate();
  /* As after any fault of the device: an error for good, and for all. */
  IS(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuStreamQuery(b), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuMemAlloc_v2(&m, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
}

WITH_OBJECTS(freeing_pool_memory_out_of_order_is_a_violation_even_if_it_goes_well, "", .violates = true) {
  CUdeviceptr m = allocate(1000, a);
  OK(cuStreamSynchronize(a));
  OK(cudasim_event_hold(e));
  OK(cuEventRecord(e, b)); /* so that it does go well */
  cudasim_pause();
  OK(cuMemsetD8Async(m, 7, 1000, a));
  OK(cuMemFreeAsync(m, b));
  cudasim_resume();
  OK(cuStreamSynchronize(a));
  OK(cudasim_event_fire(e));
  OK(cuStreamSynchronize(b));
}

SIMULATED(queueing_work_on_freed_pool_memory_is_noticed, "") {
  CUstream s = new_stream();
  CUdeviceptr m = allocate(1000, s);
  OK(cuMemFreeAsync(m, s));
  OK(cuStreamSynchronize(s));
  CHECK(cuMemsetD8Async(m, 7, 1000, s) != CUDA_SUCCESS || reports("violations", "\""));
  cudasim_reset_counters(); /* forgets violations */
  CHECK(!reports("violations", "\""));
}

WITH_OBJECTS(a_fault_stays_on_its_device, "devices=2", .violates = true) {
  CUcontext a = use(0);
  CUdeviceptr m = allocate(1000, b);
  OK(cuStreamSynchronize(b));
  close_gate(b);
  OK(cuMemsetD8Async(m, 7, 1000, b));
  OK(cuMemFreeAsync(m, NULL));
  OK(cuStreamSynchronize(NULL));
  open_gate();
  IS(cuStreamSynchronize(b), CUDA_ERROR_ILLEGAL_ADDRESS);
  use(1);
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(new_memory(64)));
  OK(cuCtxSetCurrent(a));
  IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

WITH_OBJECTS(host_pool_memory_is_born_in_stream_order, "", .violates = true) {
  needs_13();
  CUmemoryPool pool = new_pool((CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ALLOCATION_TYPE_PINNED);
  close_gate(a);
  CUdeviceptr m = 0;
  OK(cuMemAllocFromPoolAsync(&m, 100, pool, a));
  CUdeviceptr d = new_memory(100);
  OK(cuMemcpyHtoDAsync_v2(d, (void *)(uintptr_t)m, 100, b)); /* b did not wait for a */
  open_gate();
  OK(cuCtxSynchronize());
  OK(cuMemFreeAsync(m, a));
  OK(cuStreamSynchronize(a));
}
