/* Device, page-locked, registered and managed memory. */
#include "rules.h"

RULE(the_host_cannot_touch_device_memory, "") {
  use(0);
  CUdeviceptr m = new_memory(100000);
  volatile char *p = (volatile char *)(uintptr_t)m;
  CHECK(!host_reads(p));
  CHECK(!host_writes(p));
  CHECK(!host_reads(p + 99999));
  OK(cuMemsetD8_v2(m, 1, 100000)); /* it stays so when the device has written it */
  OK(cuCtxSynchronize());
  CHECK(!host_reads(p));
  OK(cuMemFree_v2(m));
  CHECK(!host_reads(p));
}

RULE(the_host_cannot_touch_what_surrounds_device_memory, "") {
  use(0);
  CUdeviceptr m = new_memory(4096);
  volatile char *p = (volatile char *)(uintptr_t)m;
  CHECK(!host_reads(p - 1));
  CHECK(!host_reads(p + 4096));
  OK(cuMemFree_v2(m));
}

RULE(no_memory_of_size_zero, "") {
  use(0);
  CUdeviceptr m;
  IS(cuMemAlloc_v2(&m, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAllocManaged(&m, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAllocAsync(&m, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemAlloc_v2(NULL, 64), CUDA_ERROR_INVALID_VALUE);
}

RULE(page_locked_memory_of_size_zero_is_no_error, "") {
  use(0);
  void *p = NULL;
  OK(cuMemAllocHost_v2(&p, 0));
  OK(cuMemFreeHost(p));
  p = NULL;
  OK(cuMemHostAlloc(&p, 0, 0));
  OK(cuMemFreeHost(p));
}

RULE(freeing_null_does_nothing, "") {
  use(0);
  OK(cuMemFree_v2(0));
  OK(cuMemFreeHost(NULL));
  IS(cuMemHostUnregister(NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(device_memory_is_aligned_to_256, "") {
  use(0);
  CUdeviceptr m[64];
  for (int i = 0; i < 64; i++) {
    m[i] = new_memory((size_t)i * 37 + 1);
    SAME(m[i] % 256, 0);
  }
  for (int i = 0; i < 64; i++) OK(cuMemFree_v2(m[i]));
}

RULE(allocations_do_not_overlap, "") {
  use(0);
  enum { n = 50 };
  CUdeviceptr m[n];
  for (int i = 0; i < n; i++) {
    m[i] = new_memory((size_t)i * 111 + 1);
    OK(cuMemsetD8_v2(m[i], (unsigned char)i, (size_t)i * 111 + 1));
  }
  for (int i = 0; i < n; i++) CHECK(is_filled(m[i], (unsigned char)i, (size_t)i * 111 + 1));
  for (int i = 0; i < n; i++) OK(cuMemFree_v2(m[i]));
}

RULE(work_past_the_end_of_an_allocation_is_refused, "") {
  use(0);
  CUdeviceptr m = new_memory(1000), other = new_memory(2000);
  CUstream s = new_stream();
  char bytes[2000] = {0};
  unsigned char *pinned = new_pinned(2000);
  IS(cuMemcpyHtoD_v2(m, bytes, 1001), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(bytes, m, 1001), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(bytes, m + 990, 11), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(bytes, m - 1, 10), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(bytes, m, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoD_v2(m, other, 2000), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD8_v2(m, 0, 1001), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD32_v2(m, 0, 251), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD32_v2(m, 0, SIZE_MAX / 4 + 2), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyHtoDAsync_v2(m, pinned, 1001, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD8Async(m + 1000, 0, 1, s), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemcpyDtoH_v2(bytes, m + 990, 10));
  OK(cuMemFree_v2(m));
  OK(cuMemFree_v2(other));
  OK(cuMemFreeHost(pinned));
  OK(cuStreamDestroy_v2(s));
}

RULE(freed_memory_is_refused, "") {
  use(0);
  CUdeviceptr m = new_memory(100);
  char bytes[100] = {0};
  OK(cuMemFree_v2(m));
  IS(cuMemFree_v2(m), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(bytes, m, 100), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyHtoD_v2(m, bytes, 100), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD8_v2(m, 0, 100), CUDA_ERROR_INVALID_VALUE);
}

RULE(only_the_start_of_an_allocation_is_freed, "") {
  use(0);
  CUdeviceptr m = new_memory(1000);
  IS(cuMemFree_v2(m + 256), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFree_v2(0x1234567800), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(m));
}

RULE(each_kind_of_memory_has_its_own_free, "") {
  use(0);
  CUdeviceptr m = new_memory(64);
  unsigned char *p = new_pinned(64);
  char bytes[64];
  IS(cuMemFree_v2((CUdeviceptr)(uintptr_t)p), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFreeHost((void *)(uintptr_t)m), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFreeHost(bytes), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(m));
  OK(cuMemFreeHost(p));
  IS(cuMemFreeHost(p), CUDA_ERROR_INVALID_VALUE);
}

RULE(fresh_device_memory_is_garbage, "") {
  use(0);
  CUdeviceptr m = new_memory(4096);
  CHECK(!is_filled(m, 0, 64));
  CHECK(!is_filled(m + 4032, 0, 64));
  OK(cuMemFree_v2(m));
}

RULE(fresh_page_locked_memory_is_garbage, "") {
  use(0);
  unsigned char *p = new_pinned(4096);
  CHECK(!all_bytes(p, 0, 64));
  OK(cuMemFreeHost(p));
}

RULE(without_poison_fresh_memory_is_zero, "poison=0") {
  use(0);
  CUdeviceptr m = new_memory(4096);
  CHECK(is_filled(m, 0, 4096));
  OK(cuMemFree_v2(m));
}

RULE(what_was_freed_is_not_seen_again, "") {
  use(0);
  for (int i = 0; i < 20; i++) {
    CUdeviceptr m = new_memory(4096);
    CHECK(!is_filled(m, 0x77, 64));
    OK(cuMemsetD8_v2(m, 0x77, 4096));
    OK(cuMemFree_v2(m));
  }
}

RULE(freeing_device_memory_waits_for_queued_work, "") {
  use(0);
  CUdeviceptr m = new_memory(64);
  CUstream s = new_stream();
  atomic_bool done;
  queue_late(&done, s);
  OK(cuMemFree_v2(m));
  CHECK(done);
  OK(cuStreamDestroy_v2(s));
}

RULE(device_memory_is_limited, "memory=1048576") {
  use(0);
  size_t free, total, before;
  CUdeviceptr m = 0, rest;
  OK(cuMemGetInfo_v2(&before, &total));
  SAME(total, 1048576);
  SAME(before, total);
  IS(cuMemAlloc_v2(&rest, 1048577), CUDA_ERROR_OUT_OF_MEMORY);
  IS(cuMemAlloc_v2(&rest, (size_t)1 << 62), CUDA_ERROR_OUT_OF_MEMORY);
  IS(cuMemAlloc_v2(&rest, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAlloc_v2(&m, 600000));
  OK(cuMemGetInfo_v2(&free, &total));
  CHECK(free <= before - 600000 && total == 1048576);
  IS(cuMemAlloc_v2(&rest, 500000), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFree_v2(m));
  OK(cuMemGetInfo_v2(&free, &total));
  SAME(free, before);
  OK(cuMemAlloc_v2(&rest, 1048576));
  OK(cuMemFree_v2(rest));
}

RULE(memory_is_limited_per_device, "devices=2,memory=1048576") {
  CUcontext a = use(0);
  CUdeviceptr m = new_memory(1048576), n, none;
  use(1);
  n = new_memory(1048576);
  IS(cuMemAlloc_v2(&none, 1), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFree_v2(n));
  OK(cuCtxSetCurrent(a));
  OK(cuMemFree_v2(m));
}

RULE(page_locked_memory_is_limited, "host_memory=1048576") {
  use(0);
  void *p, *q;
  IS(cuMemAllocHost_v2(&p, 2097152), CUDA_ERROR_OUT_OF_MEMORY);
  IS(cuMemHostAlloc(&p, 2097152, 0), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAllocHost_v2(&p, 1000000));
  IS(cuMemAllocHost_v2(&q, 1000000), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFreeHost(p));
  OK(cuMemAllocHost_v2(&q, 1000000));
  OK(cuMemFreeHost(q));
}

RULE(address_ranges_are_known, "") {
  use(0);
  CUdeviceptr m = new_memory(5000), base = 0;
  size_t size = 0;
  OK(cuMemGetAddressRange_v2(&base, &size, m + 4999));
  CHECK(base == m && size == 5000);
  OK(cuMemGetAddressRange_v2(NULL, &size, m));
  OK(cuMemGetAddressRange_v2(&base, NULL, m));
  IS(cuMemGetAddressRange_v2(&base, &size, m + 5000), CUDA_ERROR_NOT_FOUND);
  OK(cuMemFree_v2(m));
  IS(cuMemGetAddressRange_v2(&base, &size, m), CUDA_ERROR_NOT_FOUND);
}

static size_t lines(const char *path) {
  FILE *f = fopen(path, "r");
  size_t n = 0;
  for (int c; (c = getc(f)) != EOF;) n += c == '\n';
  fclose(f);
  return n;
}

RULE(hundred_thousand_allocations_leave_nothing, "") {
  use(0);
  size_t maps = 0;
  double start = now();
  for (int i = 0; i < 100000; i++) {
    OK(cuMemFree_v2(new_memory((size_t)(i % 7 + 1) * 1000)));
    if (i == 1000) maps = lines("/proc/self/maps");
  }
  CHECK(lines("/proc/self/maps") <= maps + 20);
  CHECK(now() - start < 30); /* a few seconds; much more only if it grows with the number of past allocations */
  SAME(reported("device_bytes", 0), 0);
}

RULE(freed_addresses_do_not_come_back_at_once, "") {
  use(0);
  CUdeviceptr last[16] = {0};
  for (int i = 0; i < 200; i++) {
    CUdeviceptr m = new_memory(1000);
    for (int k = 0; k < 16; k++) CHECK(m != last[k]);
    last[i % 16] = m;
    OK(cuMemFree_v2(m));
  }
}

RULE(many_allocations_may_live_at_once, "") {
  use(0);
  enum { n = 10000 };
  static CUdeviceptr m[n];
  for (int i = 0; i < n; i++) m[i] = new_memory(100);
  SAME(reported("allocations", 0), n);
  OK(cuMemsetD8_v2(m[n - 1], 9, 100));
  CHECK(is_filled(m[n - 1], 9, 100));
  for (int i = n; i-- > 0;) OK(cuMemFree_v2(m[i]));
}

RULE(large_allocations_cost_nothing_before_they_are_used, "poison=0") {
  use(0);
  CUdeviceptr m = new_memory((size_t)15 << 30);
  OK(cuMemsetD8_v2(m + ((size_t)14 << 30), 1, 64));
  CHECK(is_filled(m + ((size_t)14 << 30), 1, 64));
  OK(cuMemFree_v2(m));
}

RULE(page_locked_memory_is_the_host_s, "") {
  use(0);
  unsigned char *p = new_pinned(10000);
  SAME((uintptr_t)p % 64, 0);
  memset(p, 4, 10000);
  CUdeviceptr m = new_memory(10000), d = 0;
  OK(cuMemcpyHtoD_v2(m, p, 10000));
  CHECK(is_filled(m, 4, 10000));
  OK(cuMemHostGetDevicePointer_v2(&d, p, 0));
  CHECK(d == (CUdeviceptr)(uintptr_t)p); /* unified addressing */
  OK(cuMemsetD8_v2(d + 1, 5, 9998));     /* the device reaches it as well */
  OK(cuCtxSynchronize());
  CHECK(p[0] == 4 && all_bytes(p + 1, 5, 9998) && p[9999] == 4);
  OK(cuMemFree_v2(m));
  OK(cuMemFreeHost(p));
}

RULE(page_locked_memory_has_flags, "") {
  use(0);
  void *p;
  unsigned flags = 0;
  char bytes[8];
  OK(cuMemHostAlloc(&p, 64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  OK(cuMemHostGetFlags(&flags, p));
  SAME(flags, 3);
  OK(cuMemFreeHost(p));
  OK(cuMemHostAlloc(&p, 64, 0));
  OK(cuMemHostGetFlags(&flags, p));
  SAME(flags, CU_MEMHOSTALLOC_DEVICEMAP); /* all of it is mapped, asked for or not */
  OK(cuMemFreeHost(p));
  IS(cuMemHostGetFlags(&flags, bytes), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemHostAlloc(&p, 64, 0x80), CUDA_ERROR_INVALID_VALUE);
}

RULE(the_host_cannot_touch_freed_page_locked_memory, "") {
  use(0);
  unsigned char *p = new_pinned(4096);
  CHECK(host_reads(p) && host_writes(p + 4095));
  OK(cuMemFreeHost(p));
  CHECK(!host_reads(p));
}

RULE(the_host_cannot_touch_what_surrounds_page_locked_memory, "") {
  use(0);
  enum { n = 8, page = 4096 };
  unsigned char *p[n];
  for (int i = 0; i < n; i++) p[i] = new_pinned((size_t)(i % 4 + 1) * page);
  for (int i = 0; i < n; i++) {
    CHECK(host_reads(p[i]) && host_reads(p[i] + (i % 4 + 1) * page - 1));
    CHECK(!host_reads(p[i] - 1));
    CHECK(!host_reads(p[i] + (i % 4 + 1) * page));
  }
  for (int i = 0; i < n; i++) OK(cuMemFreeHost(p[i]));
}

RULE(memory_is_registered_once, "") {
  use(0);
  static unsigned char bytes[3 * 4096];
  CUdeviceptr d = 0;
  OK(cuMemHostRegister_v2(bytes, sizeof bytes, 0));
  SAME(reported("registered_bytes", 0), sizeof bytes);
  IS(cuMemHostRegister_v2(bytes, sizeof bytes, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  IS(cuMemHostRegister_v2(bytes + 100, 100, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  OK(cuMemHostGetDevicePointer_v2(&d, bytes, 0));
  OK(cuMemsetD8_v2(d, 3, sizeof bytes));
  OK(cuCtxSynchronize());
  CHECK(all_bytes(bytes, 3, sizeof bytes));
  OK(cuMemHostUnregister(bytes));
  IS(cuMemHostUnregister(bytes), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  OK(cuMemHostRegister_v2(bytes, 10, 0));
  OK(cuMemHostUnregister(bytes));
  IS(cuMemHostRegister_v2(NULL, 10, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemHostRegister_v2(bytes, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

RULE(unregistering_takes_the_start_of_the_range, "") {
  use(0);
  static unsigned char bytes[8192];
  OK(cuMemHostRegister_v2(bytes, sizeof bytes, 0));
  IS(cuMemHostUnregister(bytes + 4096), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemHostUnregister(bytes));
  unsigned char *p = new_pinned(64);
  IS(cuMemHostUnregister(p), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFreeHost(p));
}

RULE(registered_ranges_may_share_a_page_but_not_a_byte, "") {
  use(0);
  static unsigned char bytes[4096];
  OK(cuMemHostRegister_v2(bytes + 100, 100, 0));
  OK(cuMemHostRegister_v2(bytes + 200, 100, 0));
  IS(cuMemHostRegister_v2(bytes + 199, 2, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  IS(cuMemHostRegister_v2(bytes, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  OK(cuMemHostUnregister(bytes + 100));
  IS(cuMemHostUnregister(bytes + 100), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  OK(cuMemHostUnregister(bytes + 200));
}

RULE(pageable_memory_has_no_device_pointer, "") {
  use(0);
  CUdeviceptr d;
  char bytes[64];
  IS(cuMemHostGetDevicePointer_v2(&d, bytes, 0), CUDA_ERROR_INVALID_VALUE);
}

RULE(managed_memory_belongs_to_host_and_device, "") {
  use(0);
  CUdeviceptr m;
  OK(cuMemAllocManaged(&m, 10000, CU_MEM_ATTACH_GLOBAL));
  SAME(reported("managed_bytes", 0), 10000);
  unsigned char *p = (unsigned char *)(uintptr_t)m;
  memset(p, 1, 10000);
  OK(cuMemsetD8_v2(m + 100, 2, 100));
  OK(cuCtxSynchronize());
  CHECK(p[99] == 1 && all_bytes(p + 100, 2, 100) && p[200] == 1);
  OK(cuMemFree_v2(m));
  CHECK(!host_reads(p));
  IS(cuMemAllocManaged(&m, 64, 0), CUDA_ERROR_INVALID_VALUE);
}

RULE(managed_memory_may_be_prefetched_and_advised_on, "") {
  use(0);
  CUdeviceptr m, d = new_memory(4096);
  CUstream s = new_stream();
  OK(cuMemAllocManaged(&m, 4096, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemPrefetchAsync(m, 4096, 0, s));
  OK(cuMemPrefetchAsync(m, 4096, -1, s)); /* CU_DEVICE_CPU */
  OK(cuMemAdvise(m, 4096, 3 /* preferred location */, 0));
  IS(cuMemPrefetchAsync(d, 4096, 0, s), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
  OK(cuMemFree_v2(d));
}

RULE(managed_memory_can_be_switched_off, "managed=0") {
  use(0);
  CUdeviceptr m;
  int value = 1;
  OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0));
  SAME(value, 0);
  IS(cuMemAllocManaged(&m, 64, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_NOT_SUPPORTED);
}
