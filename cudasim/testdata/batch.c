/* Batches of copies, prefetches and discards. */
#include "rules.h"

#include <dlfcn.h>

enum { CU_MEM_LOCATION_TYPE_HOST = 2, CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE = 1 };

/* When the source of a copy is read. */
enum { INVALID_ORDER, IN_STREAM_ORDER, DURING_THE_CALL, ANY_ORDER };

typedef struct {
  int order;
  CUmemLocation from_hint, to_hint;
  unsigned flags;
} attributes;

#define FIND(name, ...)                         \
  CUresult (*name)(__VA_ARGS__);                \
  *(void **)&name = dlsym(RTLD_DEFAULT, #name); \
  CHECK(name != NULL)
#define FIND_COPY \
  FIND(cuMemcpyBatchAsync_v2, CUdeviceptr *, CUdeviceptr *, size_t *, size_t, attributes *, size_t *, size_t, CUstream)
#define FIND_RANGES                                                                                           \
  FIND(cuMemPrefetchBatchAsync, CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t,           \
       unsigned long long, CUstream);                                                                         \
  FIND(cuMemDiscardBatchAsync, CUdeviceptr *, size_t *, size_t, unsigned long long, CUstream);                \
  FIND(cuMemDiscardAndPrefetchBatchAsync, CUdeviceptr *, size_t *, size_t, CUmemLocation *, size_t *, size_t, \
       unsigned long long, CUstream)

static CUdeviceptr address(const void *p) { return (uintptr_t)p; }

RULE(a_batch_copies_everywhere_in_stream_order, "version=13000") {
  FIND_COPY;
  use(0);
  CUstream s = new_stream();
  unsigned char *in = new_pinned(100), *out = new_pinned(100);
  CUdeviceptr a = new_memory(100), b = new_memory(100);
  struct gate gate;
  memset(in, 1, 100);
  close_gate(&gate, s);
  OK(cuMemsetD8Async(b, 2, 100, s));
  CUdeviceptr to[] = {a, address(out)}, from[] = {address(in), b};
  size_t sizes[] = {100, 100}, starts[] = {0, 1};
  attributes each[] = {{.order = IN_STREAM_ORDER},
                       {.order = IN_STREAM_ORDER, .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}};
  OK(cuMemcpyBatchAsync_v2(to, from, sizes, 2, each, starts, 2, s));
  STAYS_PENDING(cuStreamQuery(s));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(a, 1, 100));
  CHECK(all_bytes(out, 2, 100));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
  OK(cuMemFreeHost(in));
  OK(cuMemFreeHost(out));
  OK(cuStreamDestroy_v2(s));
}

/* The last attribute holds for all that follow. */
RULE(an_attribute_of_a_batch_holds_until_the_next, "version=13000") {
  FIND_COPY;
  use(0);
  CUstream s = new_stream();
  unsigned char in[4] = {1, 1, 1, 1};
  CUdeviceptr d = new_memory(4);
  CUdeviceptr to[] = {d, d + 1, d + 2, d + 3};
  CUdeviceptr from[] = {address(in), address(in + 1), address(in + 2), address(in + 3)};
  size_t sizes[] = {1, 1, 1, 1}, starts[] = {0, 2};
  attributes each[] = {{.order = DURING_THE_CALL}, {.order = IN_STREAM_ORDER}};
  struct gate gate;
  close_gate(&gate, s);
  OK(cuMemcpyBatchAsync_v2(to, from, sizes, 4, each, starts, 2, s));
  memset(in, 2, 4);
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(d, 1, 2) && is_filled(d + 2, 2, 2));
  OK(cuMemFree_v2(d));
  OK(cuStreamDestroy_v2(s));
}

/* An ordinary copy is allowed to read it before. */
RULE(in_stream_order_a_pageable_source_is_read_late, "version=13000") {
  FIND_COPY;
  use(0);
  CUstream s = new_stream();
  unsigned char source[100] = {0};
  CUdeviceptr d = new_memory(100), from = address(source);
  size_t size = 100, start = 0;
  attributes in_order = {.order = IN_STREAM_ORDER}, during = {.order = DURING_THE_CALL};
  struct gate gate;
  close_gate(&gate, s);
  OK(cuMemcpyBatchAsync_v2(&d, &from, &size, 1, &in_order, &start, 1, s));
  memset(source, 9, 100); /* possible results of earlier work of the stream */
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(d, 9, 100));
  close_gate(&gate, s);
  OK(cuMemcpyBatchAsync_v2(&d, &from, &size, 1, &during, &start, 1, s));
  memset(source, 8, 100); /* the call is over */
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(d, 9, 100));
  OK(cuMemFree_v2(d));
  OK(cuStreamDestroy_v2(s));
}

/* Then the source may be read before earlier work of the stream has written it. */
RULE(a_source_that_is_read_in_any_order_has_to_be_there, "version=13000", .violates = true) {
  FIND_COPY;
  use(0);
  CUstream s = new_stream();
  CUdeviceptr d = new_memory(100), from = new_memory(100);
  size_t size = 100, start = 0;
  attributes any = {.order = ANY_ORDER};
  OK(cuMemsetD8Async(from, 2, 100, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyBatchAsync_v2(&d, &from, &size, 1, &any, &start, 1, s));
  OK(cuStreamSynchronize(s));
  CHECK(!reports("violations", "\""));
  OK(cuMemsetD8Async(from, 3, 100, s));
  OK(cuMemcpyBatchAsync_v2(&d, &from, &size, 1, &any, &start, 1, s));
  OK(cuStreamSynchronize(s));
  CHECK(reports("violations", "cuMemcpyBatchAsync by the host reads"));
  OK(cuMemFree_v2(d));
  OK(cuMemFree_v2(from));
  OK(cuStreamDestroy_v2(s));
}

/* Neighbours are no conflict, nor are two copies that read the same. */
RULE(copies_of_a_batch_are_in_no_order, "version=13000", .violates = true) {
  FIND_COPY;
  use(0);
  CUstream s = new_stream();
  CUdeviceptr d = new_memory(300), e = new_memory(300);
  size_t sizes[] = {100, 100, 100}, start = 0;
  attributes in_order = {.order = IN_STREAM_ORDER};
  OK(cuMemsetD8Async(d, 1, 300, s));
  OK(cuMemsetD8Async(e, 1, 300, s));
  CUdeviceptr apart[] = {d, d + 100, d + 200}, same[] = {e, e, e};
  OK(cuMemcpyBatchAsync_v2(apart, same, sizes, 3, &in_order, &start, 1, s));
  CHECK(!reports("violations", "\""));
  CUdeviceptr both[] = {d, d + 200, d + 99}, from[] = {e, e, e};
  OK(cuMemcpyBatchAsync_v2(both, from, sizes, 3, &in_order, &start, 1, s));
  CHECK(reports("violations", "copies 0 and 2 of a batch"));
  cudasim_forget_violations();
  CUdeviceptr there[] = {d, e + 50, e + 200}, back[] = {e, d + 200, d + 200};
  OK(cuMemcpyBatchAsync_v2(there, back, sizes, 3, &in_order, &start, 1, s));
  CHECK(reports("violations", "copies 0 and 1 of a batch"));
  OK(cuStreamSynchronize(s));
  OK(cuMemFree_v2(d));
  OK(cuMemFree_v2(e));
  OK(cuStreamDestroy_v2(s));
}

RULE(during_the_call_a_pinned_source_is_read_too, "version=13000") {
  FIND_COPY;
  use(0);
  CUstream s = new_stream();
  unsigned char *source = new_pinned(100);
  CUdeviceptr d = new_memory(100), from = address(source);
  size_t size = 100, start = 0;
  attributes during = {.order = DURING_THE_CALL};
  struct gate gate;
  memset(source, 9, 100);
  close_gate(&gate, s);
  OK(cuMemcpyBatchAsync_v2(&d, &from, &size, 1, &during, &start, 1, s));
  memset(source, 8, 100);
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(d, 9, 100));
  OK(cuMemFree_v2(d));
  OK(cuMemFreeHost(source));
  OK(cuStreamDestroy_v2(s));
}

RULE(nothing_of_a_batch_is_done_if_one_copy_is_wrong, "version=12080") {
  FIND(cuMemcpyBatchAsync, CUdeviceptr *, CUdeviceptr *, size_t *, size_t, attributes *, size_t *, size_t, size_t *,
       CUstream);
  use(0);
  CUstream s = new_stream();
  CUdeviceptr a = new_memory(100), b = new_memory(100);
  OK(cuMemsetD8_v2(a, 1, 100));
  OK(cuMemsetD8_v2(b, 2, 100));
  OK(cuCtxSynchronize());
  CUdeviceptr to[] = {a, a}, from[] = {b, b};
  size_t sizes[] = {100, 101}, start = 0, failed = 77;
  attributes any = {.order = ANY_ORDER};
  IS(cuMemcpyBatchAsync(to, from, sizes, 2, &any, &start, 1, &failed, s), CUDA_ERROR_INVALID_VALUE);
  SAME(failed, 1);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(a, 1, 100));
  any.order = INVALID_ORDER; /* the fault of none of them */
  IS(cuMemcpyBatchAsync(to, from, sizes, 1, &any, &start, 1, &failed, s), CUDA_ERROR_INVALID_VALUE);
  CHECK(failed == SIZE_MAX);
  any.order = ANY_ORDER;
  OK(cuMemcpyBatchAsync(to, from, sizes, 1, &any, &start, 1, NULL, s));
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(a, 2, 100));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
  OK(cuStreamDestroy_v2(s));
}

RULE(batches_that_are_malformed_are_refused, "version=13000") {
  FIND_COPY;
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(4);
  CUdeviceptr to[] = {m, m + 1}, from[] = {m + 2, m + 3};
  size_t sizes[] = {1, 1}, starts[] = {0, 1}, late[] = {1, 1}, same[] = {0, 0}, beyond[] = {0, 2};
  attributes a[] = {{.order = ANY_ORDER}, {.order = ANY_ORDER}, {.order = ANY_ORDER}};
  attributes unknown[] = {{.order = ANY_ORDER + 1}}, flags[] = {{.order = ANY_ORDER, .flags = 2}};
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, starts, 0, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, starts, 3, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, late, 1, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, same, 2, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, beyond, 2, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, unknown, starts, 1, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 2, flags, starts, 1, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(to, from, sizes, 0, a, starts, 0, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(NULL, from, sizes, 2, a, starts, 2, s), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemcpyBatchAsync_v2(to, from, sizes, 2, a, starts, 2, s));
  OK(cuStreamSynchronize(s));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(the_legacy_stream_takes_no_batches, "version=13000") {
  FIND_COPY;
  FIND_RANGES;
  FIND(cuMemcpyBatchAsync_v2_ptsz, CUdeviceptr *, CUdeviceptr *, size_t *, size_t, attributes *, size_t *, size_t,
       CUstream);
  use(0);
  CUdeviceptr a = new_memory(2), b = a + 1, managed;
  size_t size = 1, start = 0;
  attributes any = {.order = ANY_ORDER};
  CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
  OK(cuMemAllocManaged(&managed, 1, CU_MEM_ATTACH_GLOBAL));
  IS(cuMemcpyBatchAsync_v2(&a, &b, &size, 1, &any, &start, 1, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyBatchAsync_v2(&a, &b, &size, 1, &any, &start, 1, CU_STREAM_LEGACY), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemPrefetchBatchAsync(&managed, &size, 1, &host, &start, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemDiscardBatchAsync(&managed, &size, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemDiscardAndPrefetchBatchAsync(&managed, &size, 1, &host, &start, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemcpyBatchAsync_v2_ptsz(&a, &b, &size, 1, &any, &start, 1, NULL)); /* that of the thread does */
  OK(cuMemcpyBatchAsync_v2(&a, &b, &size, 1, &any, &start, 1, CU_STREAM_PER_THREAD));
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(managed));
}

RULE(what_is_discarded_is_garbage_in_stream_order, "version=13000") {
  FIND_RANGES;
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m[2];
  size_t sizes[] = {100, 50}, start = 0;
  CUmemLocation places[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  struct gate gate;
  for (int i = 0; i < 2; i++) {
    OK(cuMemAllocManaged(&m[i], 100, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemsetD8_v2(m[i], 7, 100));
  }
  unsigned char *first = (unsigned char *)(uintptr_t)m[0], *second = (unsigned char *)(uintptr_t)m[1];
  close_gate(&gate, s);
  OK(cuMemDiscardBatchAsync(m, sizes, 2, 0, s));
  STAYS(all_bytes(first, 7, 100));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes(first, 0xa5, 100));
  CHECK(all_bytes(second, 0xa5, 50) && all_bytes(second + 50, 7, 50));
  memset(first, 7, 100);
  OK(cuMemDiscardAndPrefetchBatchAsync(m, sizes, 2, places, &start, 1, 0, s));
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes(first, 0xa5, 100));
  for (int i = 0; i < 2; i++) OK(cuMemFree_v2(m[i]));
  OK(cuStreamDestroy_v2(s));
}

RULE(prefetching_a_batch_changes_nothing, "version=13000") {
  FIND_RANGES;
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m[2], d = new_memory(100);
  size_t sizes[] = {100, 50}, starts[] = {0, 1};
  CUmemLocation places[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, {CU_MEM_LOCATION_TYPE_HOST, 0}};
  CUmemLocation nowhere[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, {CU_MEM_LOCATION_TYPE_HOST, 0}};
  for (int i = 0; i < 2; i++) {
    OK(cuMemAllocManaged(&m[i], 100, CU_MEM_ATTACH_GLOBAL));
    memset((void *)(uintptr_t)m[i], 7, 100);
  }
  OK(cuMemPrefetchBatchAsync(m, sizes, 2, places, starts, 2, 0, s));
  IS(cuMemPrefetchBatchAsync(m, sizes, 2, nowhere, starts, 2, 0, s), CUDA_ERROR_INVALID_DEVICE);
  IS(cuMemPrefetchBatchAsync(m, sizes, 2, places, starts, 2, 1, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemPrefetchBatchAsync(&d, sizes, 1, places, starts, 1, 0, s), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemDiscardBatchAsync(&d, sizes, 1, 0, s), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes((unsigned char *)(uintptr_t)m[0], 7, 100));
  for (int i = 0; i < 2; i++) OK(cuMemFree_v2(m[i]));
  OK(cuMemFree_v2(d));
  OK(cuStreamDestroy_v2(s));
}
