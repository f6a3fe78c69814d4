/* One function per thing that Go asks of the driver. */
#include "call.h"

#include <string.h>

result cdevice_v0_cuda_init(table d) { WITHOUT_CONTEXT(r, CALL(&r, d, cuInit, 0)); }

result cdevice_v0_cuda_version(table d) {
  int version = 0;
  WITHOUT_CONTEXT(r, if (!CALL(&r, d, cuDriverGetVersion, &version)) r.value = (uint64_t)version);
}

const char* cdevice_v0_cuda_error_name(table d, int code) {
  const char* name = NULL;
  return d->cuGetErrorName(code, &name) ? NULL : name;
}

const char* cdevice_v0_cuda_error_text(table d, int code) {
  const char* text = NULL;
  return d->cuGetErrorString(code, &text) ? NULL : text;
}

result cdevice_v0_cuda_device_count(table d) {
  int count = 0;
  WITHOUT_CONTEXT(r, if (!CALL(&r, d, cuDeviceGetCount, &count)) r.value = (uint64_t)count);
}

result cdevice_v0_cuda_device_get(table d, int ordinal) { ANSWER(int, d, cuDeviceGet, ordinal); }

result cdevice_v0_cuda_device_name(table d, int device, char* out, int size) {
  WITHOUT_CONTEXT(r, CALL(&r, d, cuDeviceGetName, out, size, device));
}

result cdevice_v0_cuda_device_uuid(table d, int device, unsigned char* out) {
  WITHOUT_CONTEXT(r, CALL(&r, d, cuDeviceGetUuid, out, device));
}

result cdevice_v0_cuda_device_bus_id(table d, int device, char* out, int size) {
  WITHOUT_CONTEXT(r, CALL(&r, d, cuDeviceGetPCIBusId, out, size, device));
}

result cdevice_v0_cuda_device_memory(table d, int device) { ANSWER(size_t, d, cuDeviceTotalMem, device); }

result cdevice_v0_cuda_device_attribute(table d, int device, int attribute) {
  ANSWER(int, d, cuDeviceGetAttribute, attribute, device);
}

result cdevice_v0_cuda_device_can_access(table d, int device, int peer) {
  ANSWER(int, d, cuDeviceCanAccessPeer, device, peer);
}

result cdevice_v0_cuda_context_retain(table d, int device) {
  int mode = relax(d);
  uintptr_t context = 0;
  WITHOUT_CONTEXT(r, if (!CALL(&r, d, cuDevicePrimaryCtxRetain, &context, device)) r.value = context; restore(d, mode));
}

result cdevice_v0_cuda_context_release(table d, int device) {
  int mode = relax(d);
  WITHOUT_CONTEXT(r, CALL(&r, d, cuDevicePrimaryCtxRelease, device); restore(d, mode));
}

result cdevice_v0_cuda_context_id(table d, uintptr_t context) {
  unsigned long long id = 0;
  WITHOUT_CONTEXT(r, if (d->cuCtxGetId && !CALL(&r, d, cuCtxGetId, context, &id)) r.value = id);
}

enum { invalid_context = 201, invalid_handle = 400 };

static int is_gone(int code) {
  return code == CDEVICE_V0_CUDA_GONE || code == invalid_context || code == invalid_handle;
}

result cdevice_v0_cuda_context_lives(table d, int device, uintptr_t context, uint64_t id, uintptr_t stream) {
  result r = {0, 0, 0};
  unsigned flags = 0;
  int active = 1;
  if (d->cuDevicePrimaryCtxGetState && CALL(&r, d, cuDevicePrimaryCtxGetState, device, &flags, &active)) return r;
  if (!active) return r;
  r = id ? cdevice_v0_cuda_context_id(d, context) : cdevice_v0_cuda_stream_query(d, context, stream);
  if (!r.code) r.value = !id || r.value == id;
  if (is_gone(r.code)) r = (result){0, 0, 0};
  return r;
}

result cdevice_v0_cuda_context_synchronize(table d, uintptr_t context) {
  RELAXED_IN_CONTEXT(d, context, r, r.call = cdevice_v0_cuda_call_cuCtxSynchronize; r.code = d->cuCtxSynchronize());
}

result cdevice_v0_cuda_context_access(table d, uintptr_t context, uintptr_t peer) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuCtxEnablePeerAccess, peer, 0));
}

result cdevice_v0_cuda_context_priorities(table d, uintptr_t context, int* least, int* greatest) {
  IN_CONTEXT(d, context, r, CALL(&r, d, cuCtxGetStreamPriorityRange, least, greatest));
}

result cdevice_v0_cuda_memory_info(table d, uintptr_t context, uint64_t* total) {
  size_t free_bytes = 0, total_bytes = 0;
  IN_CONTEXT(
      d, context, r, if (!CALL(&r, d, cuMemGetInfo, &free_bytes, &total_bytes)) {
        r.value = free_bytes;
        *total = total_bytes;
      });
}

result cdevice_v0_cuda_memory_new(table d, uintptr_t context, size_t size) {
  RELAXED_MAKE_IN_CONTEXT(d, context, cuMemAlloc, size);
}

result cdevice_v0_cuda_memory_free(table d, uintptr_t context, uintptr_t p) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuMemFree, p));
}

enum { attach_global = 1 }; /* CU_MEM_ATTACH_GLOBAL: any stream of any device */

result cdevice_v0_cuda_managed_new(table d, uintptr_t context, size_t size) {
  RELAXED_MAKE_IN_CONTEXT(d, context, cuMemAllocManaged, size, attach_global);
}

result cdevice_v0_cuda_managed_prefetch(table d, uintptr_t context, uintptr_t p, size_t size, int device,
                                        uintptr_t stream) {
  IN_CONTEXT(d, context, r, CALL(&r, d, cuMemPrefetchAsync, p, size, device, stream));
}

enum { host_portable = 1 }; /* CU_MEMHOSTALLOC_PORTABLE: page-locked for every context */

result cdevice_v0_cuda_host_new(table d, uintptr_t context, size_t size) {
  RELAXED_MAKE_IN_CONTEXT(d, context, cuMemHostAlloc, size, host_portable);
}

result cdevice_v0_cuda_host_free(table d, uintptr_t context, uintptr_t p) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuMemFreeHost, p));
}

result cdevice_v0_cuda_host_register(table d, uintptr_t context, uintptr_t p, size_t size, unsigned flags) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuMemHostRegister, p, size, flags));
}

result cdevice_v0_cuda_host_unregister(table d, uintptr_t context, uintptr_t p) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuMemHostUnregister, p));
}

/* CUmemLocation, CUmemPoolProps, CUmemAccessDesc, as the manual describes them. */
enum { location_device = 1, allocation_pinned = 1, access_read_write = 3, attribute_release_threshold = 4 };

struct location {
  int type, id;
};

struct cdevice_v0_cuda_pool_props {
  int allocation, handles;
  struct location location;
  void* security;
  unsigned char reserved[64]; /* newer drivers: maxSize and usage, for which zero is the default */
};

struct cdevice_v0_cuda_pool_access {
  struct location location;
  int flags;
};

_Static_assert(sizeof(struct cdevice_v0_cuda_pool_props) == 88, "CUmemPoolProps");
_Static_assert(sizeof(struct cdevice_v0_cuda_pool_access) == 12, "CUmemAccessDesc");

/* A pool of our own, not the device's default one: its cache is our choice and not that of the
 * other libraries in the process. */
result cdevice_v0_cuda_pool_new(table d, uintptr_t context, int device) {
  struct cdevice_v0_cuda_pool_props props;
  memset(&props, 0, sizeof props);
  props.allocation = allocation_pinned;
  props.location.type = location_device;
  props.location.id = device;
  RELAXED_MAKE_IN_CONTEXT(d, context, cuMemPoolCreate, &props);
}

result cdevice_v0_cuda_pool_keep(table d, uintptr_t context, uintptr_t pool, uint64_t bytes) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuMemPoolSetAttribute, pool, attribute_release_threshold, &bytes));
}

result cdevice_v0_cuda_pool_default_keeps(table d, int device) {
  result r = {0, 0, 0};
  uintptr_t pool = 0;
  if (!CALL(&r, d, cuDeviceGetDefaultMemPool, &pool, device))
    CALL(&r, d, cuMemPoolGetAttribute, pool, attribute_release_threshold, &r.value);
  return r;
}

result cdevice_v0_cuda_pool_free(table d, uintptr_t context, uintptr_t pool) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuMemPoolDestroy, pool));
}

result cdevice_v0_cuda_pool_access(table d, uintptr_t context, uintptr_t pool, int device) {
  struct cdevice_v0_cuda_pool_access access = {{location_device, device}, access_read_write};
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuMemPoolSetAccess, pool, &access, 1));
}

result cdevice_v0_cuda_pool_trim(table d, uintptr_t context, uintptr_t pool) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuMemPoolTrimTo, pool, 0));
}

result cdevice_v0_cuda_pool_memory_new(table d, uintptr_t context, uintptr_t pool, size_t size, uintptr_t stream) {
  RELAXED_MAKE_IN_CONTEXT(d, context, cuMemAllocFromPoolAsync, size, pool, stream);
}

result cdevice_v0_cuda_pool_memory_free(table d, uintptr_t context, uintptr_t p, uintptr_t stream) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuMemFreeAsync, p, stream));
}

/* The driver infers the direction of each copy from the addresses: with unified
 * addressing, which every 64-bit system has, each address belongs to one memory. */
result cdevice_v0_cuda_copy(table d, uintptr_t context, const cdevice_v0_cuda_range* ranges, size_t count,
                            uintptr_t stream) {
  IN_CONTEXT(
      d, context, r, for (size_t i = 0; i < count; i++) {
        if (ranges[i].size == 0) continue;
        if (CALL(&r, d, cuMemcpyAsync, (uintptr_t)ranges[i].dst, (uintptr_t)ranges[i].src, (size_t)ranges[i].size,
                 stream)) {
          r.value = i;
          break;
        }
      });
}

result cdevice_v0_cuda_copy_now(table d, uintptr_t context, uintptr_t dst, uintptr_t src, size_t size) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuMemcpy, dst, src, size));
}

result cdevice_v0_cuda_copy_peer(table d, uintptr_t context, uintptr_t dst_context, uintptr_t src_context,
                                 const cdevice_v0_cuda_range* ranges, size_t count, uintptr_t stream) {
  IN_CONTEXT(
      d, context, r, for (size_t i = 0; i < count; i++) {
        if (ranges[i].size == 0) continue;
        if (CALL(&r, d, cuMemcpyPeerAsync, (uintptr_t)ranges[i].dst, dst_context, (uintptr_t)ranges[i].src, src_context,
                 (size_t)ranges[i].size, stream)) {
          r.value = i;
          break;
        }
      });
}

result cdevice_v0_cuda_memset(table d, uintptr_t context, uintptr_t p, unsigned char byte, size_t size,
                              uintptr_t stream) {
  IN_CONTEXT(d, context, r, CALL(&r, d, cuMemsetD8Async, p, byte, size, stream));
}

enum { stream_non_blocking = 1 }; /* CU_STREAM_NON_BLOCKING: not ordered with the legacy default stream */

result cdevice_v0_cuda_stream_new(table d, uintptr_t context, int priority) {
  RELAXED_MAKE_IN_CONTEXT(d, context, cuStreamCreateWithPriority, stream_non_blocking, priority);
}

result cdevice_v0_cuda_stream_free(table d, uintptr_t context, uintptr_t stream) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuStreamDestroy, stream));
}

enum { not_ready = 600 }; /* CUDA_ERROR_NOT_READY: an answer, not a failure */

/* value is 1 when all work is done. */
result cdevice_v0_cuda_stream_query(table d, uintptr_t context, uintptr_t stream) {
  RELAXED_IN_CONTEXT(d, context, r, r.value = CALL(&r, d, cuStreamQuery, stream) == 0;
                     if (r.code == not_ready) r.code = 0);
}

result cdevice_v0_cuda_stream_synchronize(table d, uintptr_t context, uintptr_t stream) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuStreamSynchronize, stream));
}

result cdevice_v0_cuda_stream_wait(table d, uintptr_t context, uintptr_t stream, uintptr_t event) {
  IN_CONTEXT(d, context, r, CALL(&r, d, cuStreamWaitEvent, stream, event, 0));
}

/* CU_EVENT_BLOCKING_SYNC: a waiting thread sleeps, instead of spinning on a core that goroutines
 * could use. CU_EVENT_DISABLE_TIMING: records are cheaper. */
enum { event_flags = 1 | 2 };

result cdevice_v0_cuda_event_new(table d, uintptr_t context) {
  RELAXED_MAKE_IN_CONTEXT(d, context, cuEventCreate, event_flags);
}

result cdevice_v0_cuda_event_free(table d, uintptr_t context, uintptr_t event) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuEventDestroy, event));
}

result cdevice_v0_cuda_event_record(table d, uintptr_t context, uintptr_t event, uintptr_t stream) {
  IN_CONTEXT(d, context, r, CALL(&r, d, cuEventRecord, event, stream));
}

/* value is 1 when the latest record is complete. */
result cdevice_v0_cuda_event_query(table d, uintptr_t context, uintptr_t event) {
  RELAXED_IN_CONTEXT(d, context, r, r.value = CALL(&r, d, cuEventQuery, event) == 0;
                     if (r.code == not_ready) r.code = 0);
}

result cdevice_v0_cuda_event_synchronize(table d, uintptr_t context, uintptr_t event) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuEventSynchronize, event));
}

/* CUpointer_attribute */
enum { memory_type = 2, is_managed = 8, device_ordinal = 9, range_start = 11, range_size = 12 };

static int query(result* r, table d, uintptr_t p, cdevice_v0_cuda_pointer* out) {
  int attributes[] = {memory_type, is_managed, device_ordinal, range_start, range_size};
  void* values[] = {&out->memory, &out->managed, &out->ordinal, &out->start, &out->size};
  memset(out, 0, sizeof *out);
  return CALL(r, d, cuPointerGetAttributes, 5, attributes, values, p);
}

result cdevice_v0_cuda_pointer_query(table d, uintptr_t context, uintptr_t p, cdevice_v0_cuda_pointer* out) {
  IN_CONTEXT(d, context, r, query(&r, d, p, out));
}

enum { device_memory = 2 };

/* Many ranges lie in few allocations: the driver is asked about each once. */
static int find_end(result* r, table d, uintptr_t p, cdevice_v0_cuda_pointer* last, int32_t* out) {
  if (p - last->start >= last->size && query(r, d, p, last)) return r->code;
  *out = last->memory == device_memory && !last->managed ? last->ordinal : CDEVICE_V0_CUDA_HOST_END;
  return 0;
}

result cdevice_v0_cuda_find_ends(table d, uintptr_t context, const cdevice_v0_cuda_range* ranges, size_t count,
                                 cdevice_v0_cuda_ends* out) {
  cdevice_v0_cuda_pointer dst = {0}, src = {0};
  IN_CONTEXT(
      d, context, r, for (size_t i = 0; i < count; i++) {
        out[i] = (cdevice_v0_cuda_ends){CDEVICE_V0_CUDA_HOST_END, CDEVICE_V0_CUDA_HOST_END};
        if (ranges[i].size == 0) continue;
        if (find_end(&r, d, (uintptr_t)ranges[i].dst, &dst, &out[i].dst) ||
            find_end(&r, d, (uintptr_t)ranges[i].src, &src, &out[i].src)) {
          r.value = i;
          break;
        }
      });
}

result cdevice_v0_cuda_launch_host(table d, uintptr_t context, uintptr_t stream, void (*function)(void*), void* data) {
  IN_CONTEXT(d, context, r, CALL(&r, d, cuLaunchHostFunc, stream, function, data));
}

uintptr_t cdevice_v0_cuda_current(table d) {
  uintptr_t context = 0;
  return d->cuCtxGetCurrent(&context) ? 0 : context;
}
