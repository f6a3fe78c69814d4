/* Device memory. */
#define GROUP "device memory"
#include "rules.h"

RULE(the_host_cannot_touch_device_memory, READING,
     "Device memory cannot be read or written by the host at its address.", .alone = true) {
  CUdeviceptr m = new_memory(100000);
  volatile char* p = (volatile char*)(uintptr_t)m;
  CHECK(!host_reads(p));
  CHECK(!host_writes(p));
  fill(m, 1, 100000);
  CHECK(!host_reads(p) && !host_reads(p + 99999));
  OK(cuMemFree_v2(m));
  CHECK(!host_reads(p));
}

RULE(no_memory_of_size_zero, MANUAL, "cuMemAlloc of no bytes, or without a place for the result, is INVALID_VALUE.") {
  CUdeviceptr m;
  IS(cuMemAlloc_v2(&m, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAlloc_v2(NULL, 64), CUDA_ERROR_INVALID_VALUE);
}

RULE(freeing_null_does_nothing, READING, "cuMemFree of 0 succeeds.") { IS(cuMemFree_v2(0), CUDA_SUCCESS); }

RULE(device_memory_is_aligned_to_256, MANUAL, "The addresses of cuMemAlloc are multiples of 256.") {
  CUdeviceptr m[64];
  for (int i = 0; i < 64; i++) m[i] = new_memory((size_t)i * 37 + 1);
  for (int i = 0; i < 64; i++) {
    if (m[i] % 256 != 0) differs("an address ends in %#x", (unsigned)(m[i] % 256));
    OK(cuMemFree_v2(m[i]));
  }
}

RULE(allocations_do_not_overlap, MANUAL, "What is written to one allocation is in no other.") {
  enum { n = 50 };
  CUdeviceptr m[n];
  for (int i = 0; i < n; i++) {
    m[i] = new_memory((size_t)i * 111 + 1);
    OK(cuMemsetD8_v2(m[i], (unsigned char)i, (size_t)i * 111 + 1));
  }
  OK(cuCtxSynchronize());
  for (int i = 0; i < n; i++) CHECK(is_filled(m[i], (unsigned char)i, (size_t)i * 111 + 1));
  for (int i = 0; i < n; i++) OK(cuMemFree_v2(m[i]));
}

RULE(freed_memory_is_not_freed_again, MANUAL, "The second cuMemFree of an address is INVALID_VALUE.", .alone = true) {
  CUdeviceptr m = new_memory(100);
  OK(cuMemFree_v2(m));
  IS(cuMemFree_v2(m), CUDA_ERROR_INVALID_VALUE);
}

RULE(freed_memory_is_refused, READING, "Copies and fills of memory that was freed are INVALID_VALUE.", .alone = true) {
  CUdeviceptr m = new_memory(64 << 20); /* not a part of memory that the driver keeps */
  char bytes[100] = {0};
  OK(cuMemFree_v2(m));
  IS(cuMemcpyDtoH_v2(bytes, m, 100), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyHtoD_v2(m, bytes, 100), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD8_v2(m, 0, 100), CUDA_ERROR_INVALID_VALUE);
}

RULE(only_the_start_of_an_allocation_is_freed, MANUAL,
     "cuMemFree of an address inside of an allocation is INVALID_VALUE.") {
  CUdeviceptr m = new_memory(1000);
  IS(cuMemFree_v2(m + 256), CUDA_ERROR_INVALID_VALUE);
}

RULE(an_unknown_address_is_not_freed, READING, "cuMemFree of an address that is no allocation is INVALID_VALUE.",
     .alone = true) {
  IS(cuMemFree_v2(0x1234567800), CUDA_ERROR_INVALID_VALUE);
}

RULE(device_memory_is_not_freed_as_host_memory, READING, "cuMemFreeHost of device memory is INVALID_VALUE.",
     .alone = true) {
  CUdeviceptr m = new_memory(64);
  IS(cuMemFreeHost((void*)(uintptr_t)m), CUDA_ERROR_INVALID_VALUE);
}

RULE(page_locked_memory_is_not_freed_as_device_memory, READING, "cuMemFree of page-locked memory is INVALID_VALUE.",
     .alone = true) {
  IS(cuMemFree_v2(address(new_pinned(64))), CUDA_ERROR_INVALID_VALUE);
}

RULE(work_past_the_end_of_an_allocation_is_refused, READING,
     "Copies and fills that end behind their allocation are INVALID_VALUE when they are queued.", .alone = true) {
  CUdeviceptr m = new_memory(64 << 20);
  const size_t size = 64 << 20;
  unsigned char* host = new_pages(size + 4096);
  IS(cuMemcpyHtoD_v2(m, host, size + 4096), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(host, m, size + 4096), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(host, m + size - 10, 4096), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(host, m, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD8_v2(m, 0, size + 4096), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD32_v2(m, 0, size / 4 + 1024), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD8Async(m + size, 0, 1, a), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(host, m + size - 10, 10), CUDA_SUCCESS);
}

RULE(a_fill_of_more_bytes_than_there_are_is_refused, READING, "cuMemsetD32 of more than 2^64 bytes is INVALID_VALUE.",
     .alone = true, .driver = "succeed, as if of as many bytes as exceed 2^64") {
  IS(cuMemsetD32_v2(m, 0, SIZE_MAX / 4 + 2), CUDA_ERROR_INVALID_VALUE);
}

RULE(work_one_byte_past_the_end_is_refused, READING, "Start and end of an allocation are known to the byte.",
     .alone = true) {
  CUdeviceptr m = new_memory(1000), other = new_memory(2000);
  char bytes[2000] = {0};
  unsigned char* pinned = new_pinned(2000);
  IS(cuMemcpyHtoD_v2(m, bytes, 1001), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyHtoDAsync_v2(m, pinned, 1001, a), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(bytes, m, 1001), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(bytes, m + 990, 11), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(bytes, m - 1, 10), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoD_v2(m, other, 1001), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoD_v2(other + 1000, m, 1001), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD8_v2(m, 0, 1001), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD32_v2(m, 0, 251), CUDA_ERROR_INVALID_VALUE);
}

RULE(freeing_device_memory_waits_for_queued_work, SEEN,
     "cuMemFree waits for work of its device, in non-blocking streams and on other memory too.") {
  CUdeviceptr m = new_memory(64);
  close_gate(a);
  WAITS(cuMemFree_v2(m));
}

RULE(freeing_large_device_memory_waits_for_queued_work, SEEN, "cuMemFree of 64 MiB waits for work of its device.") {
  CUdeviceptr m = new_memory(64 << 20);
  close_gate(a);
  WAITS(cuMemFree_v2(m));
}

RULE(freeing_device_memory_does_not_wait_for_other_devices, READING,
     "cuMemFree does not wait for work of another device.", .needs = TWO) {
  CUdeviceptr m = new_memory(64);
  CUcontext first = use(0);
  use(1);
  CUstream s = new_stream();
  close_gate(s);
  OK(cuCtxSetCurrent(first));
  DOES_NOT_WAIT(cuMemFree_v2(m));
}

RULE(allocating_device_memory_does_not_wait, READING, "cuMemAlloc returns while work of the device is pending.") {
  CUdeviceptr m = 0;
  close_gate(a);
  DOES_NOT_WAIT(cuMemAlloc_v2(&m, 4096));
  open_gate();
  OK(cuStreamSynchronize(a));
  OK(cuMemFree_v2(m));
}

RULE(more_memory_than_there_is_is_refused, MANUAL, "cuMemAlloc of more than the device has is OUT_OF_MEMORY.") {
  size_t available = 0, total = 0;
  CUdeviceptr m;
  OK(cuMemGetInfo_v2(&available, &total));
  CHECK(available <= total);
  IS(cuMemAlloc_v2(&m, total + ((size_t)1 << 30)), CUDA_ERROR_OUT_OF_MEMORY);
  IS(cuMemAlloc_v2(&m, (size_t)1 << 62), CUDA_ERROR_OUT_OF_MEMORY);
  IS(cuMemAlloc_v2(&m, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  m = new_memory(64); /* and the device is as before */
  OK(cuMemFree_v2(m));
}

RULE(allocated_memory_is_no_longer_available, MANUAL, "cuMemGetInfo counts what is allocated.") {
  size_t before = 0, after = 0, total = 0;
  OK(cuMemGetInfo_v2(&before, &total));
  new_memory(256 << 20);
  OK(cuMemGetInfo_v2(&after, &total));
  CHECK(after + (200 << 20) <= before);
}

RULE(address_ranges_are_known, MANUAL, "cuMemGetAddressRange answers with start and size for an address inside.") {
  CUdeviceptr m = new_memory(5000), base = 0;
  size_t size = 0;
  IS(cuMemGetAddressRange_v2(&base, &size, m + 4999), CUDA_SUCCESS);
  CHECK(base == m);
  SAME(size, 5000);
  IS(cuMemGetAddressRange_v2(NULL, &size, m), CUDA_SUCCESS);
  IS(cuMemGetAddressRange_v2(&base, NULL, m), CUDA_SUCCESS);
}

RULE(unknown_addresses_have_no_range, MANUAL, "cuMemGetAddressRange of an address that is no allocation is NOT_FOUND.",
     .alone = true) {
  CUdeviceptr m = new_memory(64 << 20), base = 0;
  size_t size = 0;
  char byte = 0;
  IS(cuMemGetAddressRange_v2(&base, &size, address(&byte)), CUDA_ERROR_NOT_FOUND);
  OK(cuMemFree_v2(m));
  IS(cuMemGetAddressRange_v2(&base, &size, m), CUDA_ERROR_NOT_FOUND);
}

RULE(memory_is_freed_from_another_device_s_context, READING, "cuMemFree finds the device of the memory by its address.",
     .needs = TWO) {
  CUdeviceptr m = new_memory(64);
  use(1);
  IS(cuMemFree_v2(m), CUDA_SUCCESS);
}

RULE(many_allocations_may_live_at_once, MANUAL, "10,000 allocations of 100 bytes succeed.") {
  enum { n = 10000 };
  static CUdeviceptr m[n];
  for (int i = 0; i < n; i++) m[i] = new_memory(100);
  fill(m[n - 1], 9, 100);
  CHECK(is_filled(m[n - 1], 9, 100));
  for (int i = n; i-- > 0;) OK(cuMemFree_v2(m[i]));
}
