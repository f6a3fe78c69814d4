/* Address space, and the address space and memory that remain when a machine ends. */
#include "rules.h"

#include <sys/resource.h>

RULE(sixteen_devices_work_at_once, "devices=16") {
  for (int i = 0; i < 16; i++) {
    use(i);
    CUstream s = new_stream();
    CUdeviceptr m = new_memory(1000);
    OK(cuMemsetD8Async(m, 7, 1000, s));
    OK(cuStreamSynchronize(s));
    CHECK(is_filled(m, 7, 1000));
    OK(cuMemFree_v2(m));
    OK(cuStreamDestroy_v2(s));
  }
}

/* The test runs this one under a limit, and allocates more than any without it. */
RULE(address_space_may_run_out, "memory=17592186044416") {
  use(0);
  enum { most = 4096 };
  static CUdeviceptr m[most];
  int n = 0;
  CUresult r = CUDA_SUCCESS;
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return;
  while (n < most && (r = cuMemAlloc_v2(&m[n], 32 << 20)) == CUDA_SUCCESS) n++;
  SAME(r, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK(n > 4);
  SAME(reported("refused_addresses", 0), 1);
  IS(cuMemAlloc_v2(&m[n], 32 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  SAME(reported("refused_addresses", 0), 2);
  while (n > 0) OK(cuMemFree_v2(m[--n]));
  m[0] = new_memory(64 << 20); /* freed mappings give way */
  OK(cuMemFree_v2(m[0]));
}

static long resident(void) { /* at most, in KiB */
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

RULE(large_memory_costs_little_before_it_is_used, "") {
  use(0);
  long before = resident();
  double start = now();
  for (int i = 0; i < 10; i++) {
    CUdeviceptr m = new_memory((size_t)8 << 30);
    OK(cuMemFree_v2(m));
  }
  CHECK(now() - start < 5);
  CHECK(resident() - before < 128 << 10);
}

/* Small memory is garbage to the byte, large memory at its ends and here and there. */
RULE(large_memory_is_garbage_where_programs_look_first, "") {
  use(0);
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

/* Pages to itself, an unmapped one behind it, and no host access, like all other. */
RULE(large_memory_is_guarded, "") {
  use(0);
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
