/* Batches of copies, prefetches and discards. */
#define GROUP "batches"
#include "rules.h"

enum {
  IN_STREAM_ORDER = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
  DURING_THE_CALL = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
  ANY_ORDER = CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
};

RULE(a_batch_copies_in_stream_order, MANUAL,
     "cuMemcpyBatchAsync_v2 copies to and from device and host, as work of its stream.") {
  needs_13();
  CUstream s = new_stream();
  unsigned char *in = new_pinned(100), *out = new_pinned(100);
  CUdeviceptr a = new_memory(100), b = new_memory(100);
  CUdeviceptr to[] = {a, address(out)}, from[] = {address(in), b};
  size_t sizes[] = {100, 100}, starts[] = {0, 1};
  CUmemcpyAttributes each[] = {
      {.srcAccessOrder = IN_STREAM_ORDER},
      {.srcAccessOrder = IN_STREAM_ORDER, .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}};
  memset(in, 1, 100);
  close_gate(s);
  OK(cuMemsetD8Async(b, 2, 100, s));
  DOES_NOT_WAIT(cuMemcpyBatchAsync_v2(to, from, sizes, 2, each, starts, 2, s));
  STAYS_PENDING(cuStreamQuery(s));
  open_gate();
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(a, 1, 100));
  CHECK(all_bytes(out, 2, 100));
}

/* Of four copies, two are read during the call, and overwritten after it. */
static void overwrite_half(int first, int second, size_t half) {
  CUstream s = new_stream();
  unsigned char* in = new_pinned(4);
  CUdeviceptr d = new_memory(4), i = address(in);
  CUdeviceptr to[] = {d, d + 1, d + 2, d + 3}, from[] = {i, i + 1, i + 2, i + 3};
  size_t sizes[] = {1, 1, 1, 1}, starts[] = {0, 2};
  CUmemcpyAttributes each[] = {{.srcAccessOrder = first}, {.srcAccessOrder = second}};
  memset(in, 1, 4);
  close_gate(s);
  MAY_WAIT(cuMemcpyBatchAsync_v2(to, from, sizes, 4, each, starts, 2, s));
  memset(in + half, 2, 2);
  open_gate();
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(d, 1, 4));
}

RULE(an_attribute_of_a_batch_holds_until_the_next, MANUAL,
     "An attribute of cuMemcpyBatchAsync_v2 holds for its copy and all copies up to that of the next attribute.") {
  needs_13();
  overwrite_half(DURING_THE_CALL, IN_STREAM_ORDER, 0);
  overwrite_half(IN_STREAM_ORDER, DURING_THE_CALL, 2);
}

static void write_twos(void* source) { memset(source, 2, 100); }

RULE(a_batch_of_pageable_memory_in_stream_order_waits, SEEN,
     "A batch that reads pageable memory in stream order returns after earlier work of its stream.") {
  needs_13();
  CUstream s = new_stream();
  unsigned char* source = new_pages(4096);
  CUdeviceptr d = new_memory(100), from = address(source);
  size_t size = 100, start = 0;
  CUmemcpyAttributes each = {.srcAccessOrder = IN_STREAM_ORDER};
  memset(source, 1, 100);
  close_gate(s);
  OK(cuLaunchHostFunc(s, write_twos, source));
  WAITS(cuMemcpyBatchAsync_v2(&d, &from, &size, 1, &each, &start, 1, s));
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(d, 2, 100));
}

static void overwrite_after_the_call(unsigned char* source) {
  CUstream s = new_stream();
  CUdeviceptr d = new_memory(100), from = address(source);
  size_t size = 100, start = 0;
  CUmemcpyAttributes each = {.srcAccessOrder = DURING_THE_CALL};
  memset(source, 1, 100);
  close_gate(s);
  MAY_WAIT(cuMemcpyBatchAsync_v2(&d, &from, &size, 1, &each, &start, 1, s));
  memset(source, 2, 100);
  open_gate();
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(d, 1, 100));
}

RULE(during_the_call_a_source_is_read_at_once, MANUAL,
     "A batch that reads during the call has read its sources, page-locked ones too, when it returns; it may wait.") {
  needs_13();
  overwrite_after_the_call(new_pages(4096));
  overwrite_after_the_call(new_pinned(100));
}

RULE(nothing_of_a_batch_is_done_if_one_copy_is_wrong, READING,
     "cuMemcpyBatchAsync of CUDA 12.8 names the copy that is wrong, or SIZE_MAX, and does none.", .alone = true) {
  int version = 0;
  OK(cuDriverGetVersion(&version));
  if (version >= 13000) skip("the driver is of CUDA 13");
  CUstream s = new_stream();
  CUdeviceptr a = new_memory(100), b = new_memory(100);
  CUdeviceptr to[] = {a, a}, from[] = {b, b};
  size_t sizes[] = {100, 1 << 30}, start = 0, failed = 77;
  CUmemcpyAttributes any = {.srcAccessOrder = ANY_ORDER};
  fill(a, 1, 100);
  fill(b, 2, 100);
  IS(cuMemcpyBatchAsync(to, from, sizes, 2, &any, &start, 1, &failed, s), CUDA_ERROR_INVALID_VALUE);
  SAME(failed, 1);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(a, 1, 100));
  any.srcAccessOrder = 0; /* the fault of no copy */
  IS(cuMemcpyBatchAsync(to, from, sizes, 1, &any, &start, 1, &failed, s), CUDA_ERROR_INVALID_VALUE);
  CHECK(failed == SIZE_MAX);
  any.srcAccessOrder = ANY_ORDER;
  IS(cuMemcpyBatchAsync(to, from, sizes, 1, &any, &start, 1, NULL, s), CUDA_SUCCESS);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(a, 2, 100));
}

RULE(malformed_batches_are_refused, MANUAL,
     "cuMemcpyBatchAsync_v2 without copies, or with attributes that do not begin at 0 and rise, is INVALID_VALUE.",
     .alone = true) {
  needs_13();
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(4);
  CUdeviceptr to[] = {m, m + 1}, from[] = {m + 2, m + 3};
  size_t sizes[] = {1, 1}, starts[] = {0, 1}, late[] = {1, 1}, same[] = {0, 0}, beyond[] = {0, 2};
  CUmemcpyAttributes a[] = {
      {.srcAccessOrder = ANY_ORDER}, {.srcAccessOrder = ANY_ORDER}, {.srcAccessOrder = ANY_ORDER}};
  CUmemcpyAttributes unknown = {.srcAccessOrder = ANY_ORDER + 1}, flags = {.srcAccessOrder = ANY_ORDER, .flags = 2};
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, starts, 0, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, starts, 3, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, late, 1, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, same, 2, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, beyond, 2, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, &unknown, starts, 1, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, &flags, starts, 1, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 0, a, starts, 0, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(NULL, from, sizes, 2, a, starts, 2, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, starts, 2, s), CUDA_SUCCESS);
  OK(cuStreamSynchronize(s));
}

RULE(the_legacy_stream_takes_no_batches, MANUAL,
     "Batches in the legacy stream are INVALID_VALUE; CU_STREAM_PER_THREAD takes them.",
     .needs = MANAGED | CONCURRENT) {
  needs_13();
  CUdeviceptr a = new_memory(2), b = a + 1, managed = new_managed(4096);
  size_t size = 1, page = 4096, start = 0;
  CUmemcpyAttributes any = {.srcAccessOrder = ANY_ORDER};
  CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
  IS(cuMemcpyBatchAsync_v2(&a, &b, &size, 1, &any, &start, 1, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(&a, &b, &size, 1, &any, &start, 1, CU_STREAM_LEGACY), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemPrefetchBatchAsync(&managed, &page, 1, &host, &start, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemDiscardBatchAsync(&managed, &page, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemDiscardAndPrefetchBatchAsync(&managed, &page, 1, &host, &start, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(&a, &b, &size, 1, &any, &start, 1, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(managed));
}

RULE(a_batch_names_the_per_thread_stream, SEEN,
     "cuMemcpyBatchAsync_v2_ptsz of stream 0 is INVALID_VALUE; of CU_STREAM_PER_THREAD it succeeds.") {
  needs_13();
  size_t size = 1, start = 0;
  CUmemcpyAttributes any = {.srcAccessOrder = ANY_ORDER};
  IS(cuMemcpyBatchAsync_v2_ptsz(&m, &n, &size, 1, &any, &start, 1, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2_ptsz(&m, &n, &size, 1, &any, &start, 1, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
}

RULE(prefetching_a_batch_changes_nothing, MANUAL,
     "cuMemPrefetchBatchAsync moves ranges of managed memory to places, and leaves their bytes.",
     .needs = MANAGED | CONCURRENT) {
  needs_13();
  CUstream s = new_stream();
  CUdeviceptr m[] = {new_managed(8192), new_managed(8192)};
  size_t sizes[] = {8192, 4096}, starts[] = {0, 1};
  CUmemLocation places[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, {CU_MEM_LOCATION_TYPE_HOST, 0}};
  for (int i = 0; i < 2; i++) memset((void*)(uintptr_t)m[i], 7, 8192);
  IS(cuMemPrefetchBatchAsync(m, sizes, 2, places, starts, 2, 0, s), CUDA_SUCCESS);
  OK(cuStreamSynchronize(s));
  for (int i = 0; i < 2; i++) CHECK(all_bytes((unsigned char*)(uintptr_t)m[i], 7, 8192));
  for (int i = 0; i < 2; i++) OK(cuMemFree_v2(m[i]));
}

RULE(batches_of_ranges_are_checked, SEEN,
     "Batches of prefetches and discards of device memory, with flags or to an unknown device, are INVALID_VALUE.",
     .needs = MANAGED | CONCURRENT, .alone = true) {
  needs_13();
  CUstream s = new_stream();
  CUdeviceptr m = new_managed(4096), d = new_memory(4096);
  size_t size = 4096, start = 0;
  CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, unknown = {CU_MEM_LOCATION_TYPE_DEVICE, 77};
  IS(cuMemPrefetchBatchAsync(&m, &size, 1, &unknown, &start, 1, 0, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemPrefetchBatchAsync(&m, &size, 1, &device, &start, 1, 1, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemPrefetchBatchAsync(&d, &size, 1, &device, &start, 1, 0, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemDiscardBatchAsync(&d, &size, 1, 0, s), CUDA_ERROR_INVALID_VALUE);
}
