/* Many copies, prefetches or discards in one call. If anything in a batch is wrong,
 * nothing of it is queued. */
#include "sim.h"

#include <stdlib.h>

static const unsigned char GARBAGE = 0xa5;

/* The k-th attribute of a batch is that of its members from starts[k] on. */
static CUresult check_starts(size_t count, const void *attributes, const size_t *starts, size_t n) {
  if (!attributes || !starts || !n || n > count || starts[0]) return CUDA_ERROR_INVALID_VALUE;
  for (size_t k = 1; k < n; k++)
    if (starts[k] <= starts[k - 1]) return CUDA_ERROR_INVALID_VALUE;
  return starts[n - 1] < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Moves *k on to the attribute of the i-th member. */
static size_t advance(size_t *k, size_t i, const size_t *starts, size_t n) {
  if (*k + 1 < n && starts[*k + 1] == i) ++*k;
  return *k;
}

/* The legacy default stream takes no batches, and the per-thread one only by its own name. */
static CUresult find_stream(CUstream handle, struct stream **out) {
  CUresult r = stream_find_current(handle, out);
  if (r) return r;
  return handle && (*out)->role != LEGACY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_attributes(const CUmemcpyAttributes *a, size_t n) {
  for (size_t k = 0; k < n; k++)
    if (a[k].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
        a[k].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
        a[k].flags & ~(unsigned)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)
      return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* The memory that one copy of a batch reads or writes. */
struct span {
  CUdeviceptr start, end;
  size_t copy;
  bool write;
};

static int by_start(const void *a, const void *b) {
  const struct span *x = a, *y = b;
  return x->start < y->start ? -1 : x->start > y->start;
}

/* Of the spans so far, the two of different copies that reach furthest. */
struct furthest {
  const struct span *first, *second;
};

static void reach(struct furthest *f, const struct span *s) {
  if (!f->first || s->end > f->first->end) {
    if (f->first && f->first->copy != s->copy) f->second = f->first;
    f->first = s;
  } else if (f->first->copy != s->copy && (!f->second || s->end > f->second->end)) {
    f->second = s;
  }
}

static bool meets(const struct furthest *f, const struct span *s) {
  const struct span *other = f->first && f->first->copy == s->copy ? f->second : f->first;
  if (!other || other->end <= s->start) return false;
  violation(
      "%s: copies %zu and %zu of a batch touch memory at 0x%llx, and one of them writes it: "
      "the copies of a batch are in no order",
      self()->call, other->copy, s->copy, s->start);
  return true;
}

static void check_conflicts(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count) {
  if (!sim.options.race) return;
  struct span *spans = fresh(2 * count * sizeof *spans);
  for (size_t i = 0; i < count; i++) {
    spans[2 * i] = (struct span){to[i], to[i] + sizes[i], i, true};
    spans[2 * i + 1] = (struct span){from[i], from[i] + sizes[i], i, false};
  }
  qsort(spans, 2 * count, sizeof *spans, by_start);
  struct furthest reads = {0}, writes = {0};
  for (size_t i = 0; i < 2 * count; i++) {
    const struct span *s = &spans[i];
    if (meets(&writes, s) || (s->write && meets(&reads, s))) break;
    reach(s->write ? &writes : &reads, s);
  }
  free(spans);
}

/* Drivers were seen to wait for earlier work of the stream where a source is read during the call, and where
 * pageable memory is read in stream order. The host learns nothing by it: no manual says so. */
static bool has_to_wait(int order, CUdeviceptr from) {
  if (order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) return !block_at(from);
  return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
}

static CUresult wait_for_sources(struct stream *s, const CUdeviceptr *from, size_t count,
                                 const CUmemcpyAttributes *attributes, const size_t *starts, size_t n) {
  if (s->capture) return CUDA_SUCCESS;
  for (size_t i = 0, k = 0; i < count; i++)
    if (has_to_wait(attributes[advance(&k, i, starts, n)].srcAccessOrder, from[i])) return stream_wait(s, s->queued);
  return CUDA_SUCCESS;
}

/* *failed is the member that is wrong, SIZE_MAX if it is not one of them. */
CUresult batch_copy(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
                    size_t *starts, size_t attribute_count, size_t *failed, CUstream stream) {
  size_t ignored;
  struct stream *s;
  if (!failed) failed = &ignored;
  *failed = SIZE_MAX;
  if (!to || !from || !sizes) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = find_stream(stream, &s);
  if (!r) r = check_starts(count, attributes, starts, attribute_count);
  if (!r) r = check_attributes(attributes, attribute_count);
  if (r) return r;
  for (size_t i = 0; i < count; i++)
    if ((r = copy_check(to[i], from[i], sizes[i]))) {
      *failed = i;
      return r;
    }
  check_conflicts(to, from, sizes, count);
  r = wait_for_sources(s, from, count, attributes, starts, attribute_count);
  for (size_t i = 0, k = 0; i < count && !r; i++) {
    const CUmemcpyAttributes *a = &attributes[advance(&k, i, starts, attribute_count)];
    r = copy_ordered(to[i], from[i], sizes[i], a->srcAccessOrder, stream);
    if (r) *failed = i;
  }
  return r;
}

CUresult batch_copy_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, CUmemcpyAttributes *attributes,
                       size_t *starts, size_t attribute_count, CUstream stream) {
  return batch_copy(to, from, sizes, count, attributes, starts, attribute_count, NULL, stream);
}

static CUresult check_ranges(const CUdeviceptr *addresses, const size_t *sizes, size_t count, unsigned long long flags,
                             CUstream stream) {
  struct stream *s;
  if (!sim.options.managed) return CUDA_ERROR_NOT_SUPPORTED;
  if (!addresses || !sizes || !count || flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = find_stream(stream, &s);
  for (size_t i = 0; i < count && !r; i++) r = managed_check(addresses[i], sizes[i]);
  return r;
}

static CUresult check_places(size_t count, const CUmemLocation *places, const size_t *starts, size_t n) {
  CUresult r = check_starts(count, places, starts, n);
  for (size_t k = 0; k < n && !r; k++) r = managed_check_place(places[k]);
  return r;
}

static CUresult prefetch(const CUdeviceptr *addresses, const size_t *sizes, size_t count, const CUmemLocation *places,
                         const size_t *starts, size_t n, CUstream stream) {
  CUresult r = CUDA_SUCCESS;
  for (size_t i = 0, k = 0; i < count && !r; i++)
    r = managed_prefetch_v2(addresses[i], sizes[i], places[advance(&k, i, starts, n)], 0, stream);
  return r;
}

/* Memory that is discarded has indeterminate contents until it is written again: it is filled with
 * garbage, which counts as a fill. */
static CUresult discard(const CUdeviceptr *addresses, const size_t *sizes, size_t count, CUstream stream) {
  CUresult r = CUDA_SUCCESS;
  for (size_t i = 0; i < count && !r; i++)
    r = sim.options.poison ? set_8_async(addresses[i], GARBAGE, sizes[i], stream)
                           : managed_prefetch(addresses[i], sizes[i], CU_DEVICE_CPU, stream);
  return r;
}

CUresult batch_prefetch(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *places, size_t *starts,
                        size_t place_count, unsigned long long flags, CUstream stream) {
  CUresult r = check_ranges(addresses, sizes, count, flags, stream);
  if (!r) r = check_places(count, places, starts, place_count);
  return r ? r : prefetch(addresses, sizes, count, places, starts, place_count, stream);
}

CUresult batch_discard(CUdeviceptr *addresses, size_t *sizes, size_t count, unsigned long long flags, CUstream stream) {
  CUresult r = check_ranges(addresses, sizes, count, flags, stream);
  return r ? r : discard(addresses, sizes, count, stream);
}

CUresult batch_discard_prefetch(CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *places,
                                size_t *starts, size_t place_count, unsigned long long flags, CUstream stream) {
  CUresult r = check_ranges(addresses, sizes, count, flags, stream);
  if (!r) r = check_places(count, places, starts, place_count);
  if (!r) r = discard(addresses, sizes, count, stream);
  return r ? r : prefetch(addresses, sizes, count, places, starts, place_count, stream);
}
