/* Page-locked memory. */
#define GROUP "page-locked memory"
#include "rules.h"

RULE(page_locked_memory_of_size_zero_is_no_error, READING, "cuMemAllocHost and cuMemHostAlloc of no bytes succeed.",
     .alone = true) {
  void* p = NULL;
  IS(cuMemAllocHost_v2(&p, 0), CUDA_SUCCESS);
  IS(cuMemFreeHost(p), CUDA_SUCCESS);
  p = NULL;
  IS(cuMemHostAlloc(&p, 0, 0), CUDA_SUCCESS);
  IS(cuMemFreeHost(p), CUDA_SUCCESS);
}

RULE(freeing_null_host_memory_does_nothing, READING, "cuMemFreeHost of NULL succeeds.", .alone = true) {
  IS(cuMemFreeHost(NULL), CUDA_SUCCESS);
}

RULE(page_locked_memory_is_the_host_s_and_the_device_s, MANUAL,
     "Page-locked memory has one address for host and devices, and both write it.") {
  unsigned char* p = new_pinned(10000);
  CUdeviceptr m = new_memory(10000), d = 0;
  SAME((uintptr_t)p % 64, 0);
  memset(p, 4, 10000);
  OK(cuMemcpyHtoD_v2(m, p, 10000));
  CHECK(is_filled(m, 4, 10000));
  OK(cuMemHostGetDevicePointer_v2(&d, p, 0));
  CHECK(d == address(p));
  OK(cuMemsetD8_v2(d + 1, 5, 9998));
  OK(cuCtxSynchronize());
  CHECK(p[0] == 4 && all_bytes(p + 1, 5, 9998) && p[9999] == 4);
}

RULE(page_locked_memory_has_flags, SEEN,
     "cuMemHostGetFlags answers with the flags, and with PORTABLE and DEVICEMAP in any case.") {
  void* p;
  unsigned flags = 0;
  OK(cuMemHostAlloc(&p, 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  OK(cuMemHostGetFlags(&flags, p));
  SAME(flags, 3);
  OK(cuMemFreeHost(p));
  OK(cuMemHostAlloc(&p, 64, 0));
  OK(cuMemHostGetFlags(&flags, p));
  SAME(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  OK(cuMemFreeHost(p));
}

RULE(pageable_memory_has_no_flags, READING, "cuMemHostGetFlags of pageable memory is INVALID_VALUE.") {
  unsigned flags;
  char bytes[8];
  IS(cuMemHostGetFlags(&flags, bytes), CUDA_ERROR_INVALID_VALUE);
}

RULE(flags_of_page_locked_memory_are_checked, MANUAL, "Unknown flags of cuMemHostAlloc are INVALID_VALUE.") {
  void* p;
  IS(cuMemHostAlloc(&p, 64, 0x80), CUDA_ERROR_INVALID_VALUE);
}

RULE(freed_page_locked_memory_is_not_freed_again, READING, "The second cuMemFreeHost of an address is INVALID_VALUE.",
     .alone = true) {
  unsigned char* p = new_pinned(8 << 20);
  OK(cuMemFreeHost(p));
  IS(cuMemFreeHost(p), CUDA_ERROR_INVALID_VALUE);
}

RULE(pageable_memory_is_not_freed_as_page_locked, READING, "cuMemFreeHost of pageable memory is INVALID_VALUE.",
     .alone = true) {
  char bytes[64];
  IS(cuMemFreeHost(bytes), CUDA_ERROR_INVALID_VALUE);
}

RULE(freeing_page_locked_memory_waits_for_queued_work, SEEN, "cuMemFreeHost waits for work of the device.") {
  unsigned char* p = new_pinned(4096);
  close_gate(a);
  WAITS(cuMemFreeHost(p));
}

RULE(allocating_page_locked_memory_does_not_wait, READING,
     "cuMemHostAlloc returns while work of the device is pending.") {
  void* p = NULL;
  close_gate(a);
  DOES_NOT_WAIT(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_PORTABLE));
  open_gate();
  OK(cuMemFreeHost(p));
}

RULE(portable_memory_is_page_locked_for_every_device, MANUAL,
     "Memory of CU_MEMHOSTALLOC_PORTABLE is copied by another device without staging: the copy is queued.",
     .needs = TWO) {
  use(1);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  memset(p, 1, 64);
  close_gate(s);
  DOES_NOT_WAIT(cuMemcpyHtoDAsync_v2(m, p, 64, s));
  memset(p, 2, 64);
  open_gate();
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 2, 64));
}
