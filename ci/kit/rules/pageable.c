/* Copies of pageable memory. */
#define GROUP "pageable memory"
#include "rules.h"

static void check_source(size_t size) {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(size);
  unsigned char* p = new_pages(size);
  memset(p, 1, size);
  OK(cuMemcpyHtoDAsync_v2(m, p, size, s));
  memset(p, 2, size);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 1, size));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(a_small_pageable_source_may_be_reused_at_once, MANUAL,
     "An asynchronous copy of 4 KiB of pageable memory has read it when the call returns.") {
  check_source(4096);
}
RULE(a_large_pageable_source_may_be_reused_at_once, MANUAL,
     "An asynchronous copy of 64 MiB of pageable memory has read it when the call returns.") {
  check_source(64 << 20);
}

RULE(a_pageable_source_is_read_before_the_stream_gets_there, READING,
     "An asynchronous copy of 64 bytes of pageable memory returns while the stream is held back, and has read them.") {
  unsigned char bytes[64];
  memset(bytes, 1, 64);
  close_gate(a);
  DOES_NOT_WAIT(cuMemcpyHtoDAsync_v2(m, bytes, 64, a));
  memset(bytes, 2, 64);
  STAYS_PENDING(cuStreamQuery(a));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 1, 64));
}

static void check_destination(size_t size) {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(size);
  unsigned char* p = new_pages(size);
  close_gate(s);
  OK(cuMemsetD8Async(m, 1, size, s));
  WAITS(cuMemcpyDtoHAsync_v2(p, m, size, s));
  CHECK(all_bytes(p, 1, size));
  OK(cuStreamSynchronize(s));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(
    a_small_pageable_destination_is_written_on_return, MANUAL,
    "An asynchronous copy of 4 KiB to pageable memory returns when it is done, and so after earlier work of the stream.") {
  check_destination(4096);
}
RULE(a_large_pageable_destination_is_written_on_return, MANUAL,
     "An asynchronous copy of 16 MiB to pageable memory returns when it is done.") {
  check_destination(16 << 20);
}

RULE(copies_between_host_memories_wait, MANUAL,
     "An asynchronous copy from page-locked to pageable memory returns when it is done.") {
  unsigned char* q = new_pages(4096);
  memset(p, 8, 64);
  close_gate(a);
  WAITS(cuMemcpyAsync(address(q), address(p), 64, a));
  CHECK(all_bytes(q, 8, 64));
}

RULE(a_synchronous_copy_has_read_its_pageable_source, MANUAL,
     "cuMemcpyHtoD has read pageable memory when it returns.") {
  const size_t size = 8 << 20;
  CUdeviceptr m = new_memory(size);
  unsigned char *p = new_pages(size), *q = new_pages(size);
  memset(p, 1, size);
  OK(cuMemcpyHtoD_v2(m, p, size));
  memset(p, 2, size);
  OK(cuMemcpyDtoH_v2(q, m, size));
  CHECK(all_bytes(q, 1, size));
}

RULE(a_synchronous_pageable_copy_comes_after_blocking_streams, MANUAL,
     "cuMemcpyHtoD of pageable memory waits for earlier work of blocking streams before it begins.") {
  unsigned char bytes[64];
  memset(bytes, 1, 64);
  close_gate(x);
  OK(cuMemsetD8Async(m, 2, 64, x));
  WAITS(cuMemcpyHtoD_v2(m, bytes, 64));
  OK(cuCtxSynchronize());
  CHECK(is_filled(m, 1, 64));
}

RULE(a_copy_does_not_need_memory_that_was_touched, MANUAL,
     "A copy to pageable memory that no page was given to yet succeeds.") {
  const size_t size = 4 << 20;
  CUdeviceptr m = new_memory(size);
  unsigned char* p = malloc(size);
  if (p == NULL) stop("no memory");
  OK(cuMemsetD8Async(m, 5, size, a));
  IS(cuMemcpyDtoHAsync_v2(p, m, size, a), CUDA_SUCCESS);
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(p, 5, size));
  free(p);
}

RULE(a_device_that_reaches_pageable_memory_fills_it, MANUAL,
     "cuMemsetD8 and cuMemsetD8Async take the address of pageable memory where the device reaches it.",
     .needs = PAGEABLE) {
  unsigned char* bytes = new_pages(8192);
  memset(bytes, 1, 8192);
  IS(cuMemsetD8_v2(address(bytes), 2, 4096), CUDA_SUCCESS);
  CHECK(all_bytes(bytes, 2, 4096) && all_bytes(bytes + 4096, 1, 4096));
  IS(cuMemsetD8Async(address(bytes + 4096), 3, 4096, a), CUDA_SUCCESS);
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(bytes, 2, 4096) && all_bytes(bytes + 4096, 3, 4096));
}

RULE(a_device_that_reaches_pageable_memory_copies_it_as_its_own, MANUAL,
     "Copies take the address of pageable memory for one of the device where the device reaches it.",
     .needs = PAGEABLE) {
  unsigned char *from = new_pages(4096), *to = new_pages(4096);
  memset(from, 4, 4096);
  IS(cuMemcpyDtoDAsync_v2(m, address(from), N, a), CUDA_SUCCESS);
  OK(cuStreamSynchronize(a));
  CHECK(is_filled(m, 4, N));
  IS(cuMemcpyDtoH_v2(to, address(from), 4096), CUDA_SUCCESS);
  CHECK(all_bytes(to, 4, 4096));
  memset(from, 5, 4096);
  IS(cuMemcpyHtoD_v2(address(to), from, 4096), CUDA_SUCCESS);
  CHECK(all_bytes(to, 5, 4096));
}

RULE(work_on_pageable_memory_follows_its_stream, MANUAL,
     "A fill of pageable memory that the device reaches is done in the order of its stream.", .needs = PAGEABLE) {
  unsigned char* bytes = new_pages(4096);
  memset(bytes, 1, 4096);
  close_gate(a);
  DOES_NOT_WAIT(cuMemsetD8Async(address(bytes), 6, 4096, a));
  STAYS(all_bytes(bytes, 1, 4096));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(bytes, 6, 4096));
}

RULE(
    a_device_with_the_host_s_page_tables_is_coherent, MANUAL,
    "A device with attribute 100 also reaches pageable memory (88) and has concurrent managed access (89), and the host "
    "reaches managed memory on it (101).",
    .needs = COHERENT) {
  SAME(attribute(ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0), 1);
  SAME(attribute(ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0), 1);
  SAME(attribute(ATTRIBUTE_DIRECT_MANAGED_ACCESS, 0), 1);
}
