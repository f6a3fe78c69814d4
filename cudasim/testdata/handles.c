/* What is no handle is an error, never a crash, as it may be with a driver. */
#include "simulator.h"

WITH_OBJECTS(what_is_no_event_is_refused, "") {
  int garbage[64] = {0};
  CUevent wrong[] = {NULL, (CUevent)(void *)garbage, (CUevent)(void *)a, e};
  OK(cuEventDestroy_v2(e));
  for (int i = 0; i < 4; i++) {
    IS(cuEventQuery(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuEventSynchronize(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuEventRecord(wrong[i], a), CUDA_ERROR_INVALID_HANDLE);
    IS(cuStreamWaitEvent(a, wrong[i], 0), CUDA_ERROR_INVALID_HANDLE);
    IS(cuEventDestroy_v2(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
  }
}

WITH_OBJECTS(a_destroyed_event_s_handle_does_not_come_back_to_life, "") {
  OK(cuEventDestroy_v2(f));
  CUevent e[16];
  for (int i = 0; i < 16; i++) {
    e[i] = new_event();
    CHECK(e[i] != f);
  }
  IS(cuEventQuery(f), CUDA_ERROR_INVALID_HANDLE);
}

WITH_OBJECTS(what_is_no_stream_is_refused, "") {
  int garbage[64] = {0};
  CUstream wrong[] = {(CUstream)(void *)garbage, (CUstream)(void *)e, a, (CUstream)3};
  OK(cuStreamDestroy_v2(a));
  for (int i = 0; i < 4; i++) {
    IS(cuStreamQuery(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuStreamSynchronize(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuStreamWaitEvent(wrong[i], e, 0), CUDA_ERROR_INVALID_HANDLE);
    IS(cuEventRecord(e, wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuMemsetD8Async(m, 0, 64, wrong[i]), CUDA_ERROR_INVALID_HANDLE);
    IS(cuStreamDestroy_v2(wrong[i]), CUDA_ERROR_INVALID_HANDLE);
  }
}

SIMULATED(what_is_no_pool_is_refused, "") {
  CUmemoryPool destroyed = new_pool((CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ALLOCATION_TYPE_PINNED);
  int garbage[64] = {0};
  CUdeviceptr m;
  uint64_t value;
  OK(cuMemPoolDestroy(destroyed));
  CUmemoryPool wrong[] = {NULL, (CUmemoryPool)(void *)garbage, destroyed};
  for (int i = 0; i < 3; i++) {
    IS(cuMemAllocFromPoolAsync(&m, 64, wrong[i], NULL), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemPoolGetAttribute(wrong[i], CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemPoolDestroy(wrong[i]), CUDA_ERROR_INVALID_VALUE);
  }
}
