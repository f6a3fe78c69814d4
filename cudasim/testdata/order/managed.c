/* Managed memory of devices without concurrent managed access: the host must not touch any of it
 * while the device works, even on other memory. */
#include "order.h"

#define EXCLUSIVE "concurrent_managed_access=0"

static void *host_address(CUdeviceptr device) { return (void *)(uintptr_t)device; }

PAIR(managed_memory_is_read_while_the_device_fills_other, "cuMemsetD8Async", "cudasim_host_read", EXCLUSIVE) {
  CUdeviceptr m = new_managed(N);
  OK(cuMemsetD8Async(n, 7, N, a));
  WAIT(cuStreamSynchronize(a));
  cudasim_host_read(host_address(m), N);
}

PAIR(managed_memory_is_written_while_the_device_copies_other, "cuMemcpyDtoDAsync", "cudasim_host_write", EXCLUSIVE) {
  CUdeviceptr m = new_managed(N);
  OK(cuMemcpyDtoDAsync_v2(o, n, N, a));
  OK(cuEventRecord(e, a));
  OK(cuStreamSynchronize(b));
  WAIT(poll_event(e));
  cudasim_host_write(host_address(m), N);
}

PAIR(managed_memory_is_read_while_one_of_two_streams_works, "cuMemsetD8Async", "cudasim_host_read", EXCLUSIVE) {
  CUdeviceptr m = new_managed(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemsetD8Async(n, 7, N, b));
  OK(cuStreamSynchronize(a));
  WAIT(cuStreamSynchronize(b));
  cudasim_host_read(host_address(m), N);
}

PAIR(managed_memory_is_read_while_a_stream_that_is_gone_works, "cuMemsetD8Async", "cudasim_host_read", EXCLUSIVE) {
  CUdeviceptr m = new_managed(N);
  OK(cuMemsetD8Async(n, 7, N, a));
  OK(cuStreamDestroy_v2(a));
  WAIT(cuCtxSynchronize());
  cudasim_host_read(host_address(m), N);
}

PAIR(managed_memory_is_read_while_its_own_device_works, "cuMemsetD8Async", "cudasim_host_read",
     "devices=2," EXCLUSIVE) {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_managed(N), other = new_memory(N);
  use(1);
  CUstream elsewhere = new_stream();
  CUdeviceptr theirs = new_memory(N);
  OK(cuMemsetD8Async(theirs, 7, N, elsewhere));
  OK(cuMemsetD8Async(other, 7, N, s));
  WAIT(cuStreamSynchronize(s));
  cudasim_host_read(host_address(m), N);
}

/* An event is no work, and page-locked memory is the host's at any time. */
CORRECT(what_a_working_device_does_not_forbid, EXCLUSIVE) {
  CUdeviceptr m = new_managed(N);
  cudasim_host_write(host_address(m), N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuCtxSynchronize());
  OK(cuEventRecord(e, a));
  cudasim_host_read(host_address(m), N);
  OK(cuMemsetD8Async(n, 7, N, a));
  cudasim_host_write(p, N);
}

/* Until it is attached elsewhere, no device uses this memory. */
CORRECT(managed_memory_that_is_attached_to_the_host, EXCLUSIVE) {
  enum { ATTACH_HOST = 2 };
  CUdeviceptr m;
  OK(cuMemAllocManaged(&m, N, ATTACH_HOST));
  OK(cuMemsetD8Async(n, 7, N, a));
  cudasim_host_write(host_address(m), N);
  OK(cuMemFree_v2(m));
}

CORRECT(concurrent_managed_access, "") {
  CUdeviceptr m = new_managed(N);
  OK(cuMemsetD8Async(n, 7, N, a));
  cudasim_host_write(host_address(m), N);
}
