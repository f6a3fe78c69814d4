/* Garbage, and memory that the host cannot touch. */
#include "simulator.h"

SIMULATED(the_host_cannot_touch_what_surrounds_device_memory, "") {
  CUdeviceptr m = new_memory(page_size());
  volatile char *p = (volatile char *)(uintptr_t)m;
  CHECK(!host_reads(p - 1));
  CHECK(!host_reads(p + page_size()));
}

SIMULATED(the_host_cannot_touch_freed_page_locked_memory, "") {
  unsigned char *p = new_pinned(4096);
  CHECK(host_reads(p) && host_writes(p + 4095));
  OK(cuMemFreeHost(p));
  CHECK(!host_reads(p));
}

/* That drivers wait is not documented. */
WITH_OBJECTS(registered_memory_is_not_unregistered_before_its_use, "", .violates = true) {
  unsigned char *bytes = new_pages(page_size());
  OK(cuMemHostRegister_v2(bytes, page_size(), 0));
  close_gate(a);
  OK(cuMemcpyHtoDAsync_v2(m, bytes, 64, a));
  WAITS(cuMemHostUnregister(bytes));
  CHECK(reports("violations", "after it was freed"));
}

SIMULATED(the_host_cannot_touch_what_surrounds_page_locked_memory, "") {
  enum { n = 8 };
  const size_t page = page_size();
  unsigned char *p[n];
  for (int i = 0; i < n; i++) p[i] = new_pinned((size_t)(i % 4 + 1) * page);
  for (int i = 0; i < n; i++) {
    CHECK(host_reads(p[i]) && host_reads(p[i] + (size_t)(i % 4 + 1) * page - 1));
    CHECK(!host_reads(p[i] - 1));
    CHECK(!host_reads(p[i] + (size_t)(i % 4 + 1) * page));
  }
}

/* Pages to itself, an unmapped one behind it, and no host access, like all other. */
SIMULATED(large_memory_is_guarded, "") {
  const size_t size = 8 << 20;
  unsigned char *p = new_pinned(size);
  CHECK(host_writes(p) && host_writes(p + size - 1));
  CHECK(!host_reads(p - 1) && !host_reads(p + size));
  CUdeviceptr m = new_memory(size);
  CHECK(!host_reads((void *)(uintptr_t)m) && !host_reads((void *)(uintptr_t)(m + size - 1)));
  OK(cuMemFree_v2(m));
  IS(cuMemcpyDtoH_v2(p, m, 16), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFreeHost(p));
  CHECK(!host_reads(p)); /* its addresses are not used again soon */
  CHECK(new_memory(size) != m);
  OK(cuDevicePrimaryCtxReset_v2(0));
}

SIMULATED(fresh_device_memory_is_garbage, "") {
  CUdeviceptr m = new_memory(4096);
  CHECK(!is_filled(m, 0, 64));
  CHECK(!is_filled(m + 4032, 0, 64));
}

SIMULATED(fresh_page_locked_memory_is_garbage, "") {
  unsigned char *p = new_pinned(4096);
  CHECK(!all_bytes(p, 0, 64));
}

SIMULATED(what_was_freed_is_not_seen_again, "") {
  for (int i = 0; i < 20; i++) {
    CUdeviceptr m = new_memory(4096);
    CHECK(!is_filled(m, 0x77, 64));
    OK(cuMemsetD8_v2(m, 0x77, 4096));
    OK(cuMemFree_v2(m));
  }
}

/* Small memory is garbage to the byte, large memory at its ends and here and there. */
SIMULATED(large_memory_is_garbage_where_programs_look_first, "") {
  const size_t large = ((size_t)64 << 20) + 100, half = large / 2;
  static unsigned char bytes[1 << 20];
  for (int i = 0; i < 3; i++) {
    CUdeviceptr m = new_memory(large);
    OK(cuMemcpyDtoH_v2(bytes, m, 65536));
    CHECK(all_bytes(bytes, 0xa5, 65536));
    OK(cuMemcpyDtoH_v2(bytes, m + large - 65536, 65536));
    CHECK(all_bytes(bytes, 0xa5, 65536));
    OK(cuMemcpyDtoH_v2(bytes, m + half - 128, 256));
    CHECK(memchr(bytes, 0xa5, 256) != NULL);
    OK(cuMemsetD8_v2(m, 7, large));
    OK(cuMemFree_v2(m));
    m = new_memory(1 << 20);
    OK(cuMemcpyDtoH_v2(bytes, m, 1 << 20));
    CHECK(all_bytes(bytes, 0xa5, 1 << 20));
    OK(cuMemFree_v2(m));
  }
}

SIMULATED(fresh_pool_memory_is_garbage, "") {
  for (int i = 0; i < 20; i++) {
    CUdeviceptr m = allocate(4096, NULL);
    OK(cuStreamSynchronize(NULL));
    CHECK(!is_filled(m, 0, 64) && !is_filled(m, 0x77, 64));
    OK(cuMemsetD8Async(m, 0x77, 4096, NULL));
    OK(cuMemFreeAsync(m, NULL));
  }
  OK(cuStreamSynchronize(NULL));
}

SIMULATED(freed_addresses_do_not_come_back_at_once, "") {
  CUdeviceptr last[16] = {0};
  for (int i = 0; i < 200; i++) {
    CUdeviceptr m = new_memory(1000);
    for (int k = 0; k < 16; k++) CHECK(m != last[k]);
    last[i % 16] = m;
    OK(cuMemFree_v2(m));
  }
}
