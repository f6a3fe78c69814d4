/* Memory pools and stream-ordered allocation. A pool is an account: its memory comes from the
 * device like all other memory, and cached memory is only counted. */
#include "sim.h"

#include <stdlib.h>

CUresult pool_new(int device, struct pool **out) {
  struct pool *p = fresh(sizeof *p);
  CUresult r = object_add(&p->object, POOL);
  if (r) {
    free(p);
    return r;
  }
  p->device = device;
  p->limit = UINT64_MAX;
  for (int i = 0; i < 3; i++) p->reuse[i] = 1;
  if (device >= 0) p->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  *out = p;
  return CUDA_SUCCESS;
}

void pool_free(struct pool *p) { free(p); }

static void trim(struct pool *p, uint64_t keep) {
  if (keep < p->used) keep = p->used;
  if (p->reserved > keep) p->reserved = keep;
}

/* After a wait, a pool releases cached memory above its threshold. This is computed lazily, when
 * the pool is queried. */
static void settle(struct pool *p) {
  if (p->settled != sim.synchronisations) trim(p, p->threshold);
  p->settled = sim.synchronisations;
}

bool pool_take(struct pool *p, uint64_t size) {
  settle(p);
  if (size > p->limit - p->used) return false;
  p->used += size;
  if (p->used_high < p->used) p->used_high = p->used;
  if (p->reserved < p->used) p->reserved = p->used;
  if (p->reserved_high < p->reserved) p->reserved_high = p->reserved;
  return true;
}

void pool_give(struct pool *p, uint64_t size) {
  settle(p);
  p->used -= size;
}

static CUresult open_device(CUdevice device) {
  if (!sim.options.pools) return CUDA_ERROR_NOT_SUPPORTED;
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  struct device *d = &sim.devices[device];
  if (d->default_pool) return CUDA_SUCCESS;
  CUresult r = pool_new(device, &d->default_pool);
  if (r) return r;
  d->default_pool->is_default = true;
  d->pool = d->default_pool;
  return CUDA_SUCCESS;
}

static CUresult find(CUmemoryPool pool, struct pool **out) {
  if (!sim.options.pools) return CUDA_ERROR_NOT_SUPPORTED;
  *out = object_find(pool, POOL);
  if (!*out) return CUDA_ERROR_INVALID_VALUE;
  settle(*out);
  return CUDA_SUCCESS;
}

static CUresult alloc(CUdeviceptr *address, size_t size, struct pool *p, struct stream *s) {
  CUresult r = capture_forbids_pool(s);
  if (r) return r;
  struct block *b = block_new(p->memory, s->context, p->device < 0 ? s->context->device : p->device, size);
  b->pool = p;
  p->object.refs++;
  s->object.refs++;
  r = block_make(b);
  if (!r) {
    struct op *op = op_new(OP_ALLOC);
    op_touch(op, b);
    r = op_push(s, op);
    if (r) {
      block_remove(b);
      block_kill(b);
    } else {
      *address = b->address;
    }
  }
  object_unref(&s->object);
  return r;
}

CUresult pool_alloc_async(CUdeviceptr *address, size_t size, CUstream stream) {
  struct stream *s;
  if (!sim.options.pools) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult r = stream_find_ready(stream, FOR_WORK, &s);
  if (r) return r;
  if (!address || !size) return CUDA_ERROR_INVALID_VALUE;
  r = open_device(s->context->device);
  return r ? r : alloc(address, size, sim.devices[s->context->device].pool, s);
}

CUresult pool_alloc_from_async(CUdeviceptr *address, size_t size, CUmemoryPool pool, CUstream stream) {
  struct stream *s;
  struct pool *p;
  CUresult r = find(pool, &p);
  if (!r) r = stream_find_ready(stream, FOR_WORK, &s);
  if (!r) r = find(pool, &p);
  if (r) return r;
  return address && size ? alloc(address, size, p, s) : CUDA_ERROR_INVALID_VALUE;
}

/* The address is invalid at once, the memory is in use until the stream comes here. */
CUresult pool_free_async(CUdeviceptr address, CUstream stream) {
  struct stream *s;
  if (!sim.options.pools) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult r = stream_find_ready(stream, FOR_WORK, &s);
  if (!r) r = capture_forbids_pool(s);
  if (r) return r;
  struct block *b = block_at(address);
  if (!b || b->address != address || (b->memory != DEVICE_MEMORY && !b->pool) || ipc_imported(b))
    return CUDA_ERROR_INVALID_VALUE;
  struct op *op = op_new(OP_FREE);
  op_touch(op, b);
  r = op_push(s, op);
  if (r) return r;
  block_remove(b);
  return CUDA_SUCCESS;
}

CUresult pool_default(CUmemoryPool *pool, CUdevice device) {
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = open_device(device);
  if (!r) *pool = (CUmemoryPool)sim.devices[device].default_pool->object.handle;
  return r;
}

CUresult pool_of_device(CUmemoryPool *pool, CUdevice device) {
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = open_device(device);
  if (!r) *pool = (CUmemoryPool)sim.devices[device].pool->object.handle;
  return r;
}

CUresult pool_set_for_device(CUdevice device, CUmemoryPool pool) {
  struct pool *p;
  CUresult r = open_device(device);
  if (!r) r = find(pool, &p);
  if (r) return r;
  if (p->device != device) return CUDA_ERROR_INVALID_VALUE;
  sim.devices[device].pool = p;
  return CUDA_SUCCESS;
}

static CUresult check_props(const CUmemPoolProps *props) {
  if (!props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < sizeof props->reserved; i++)
    if (props->reserved[i]) return CUDA_ERROR_INVALID_VALUE;
  if (props->handleTypes || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

CUresult pool_create(CUmemoryPool *pool, const CUmemPoolProps *props) {
  struct pool *p;
  if (pool && props && place_makes(props)) return place_create(pool, props);
  CUresult r = pool ? check_props(props) : CUDA_ERROR_INVALID_VALUE;
  if (!r) r = open_device(props->location.id);
  if (!r) r = pool_new(props->location.id, &p);
  if (r) return r;
  if (props->maxSize) p->limit = props->maxSize;
  ledger_object(&p->object);
  *pool = (CUmemoryPool)p->object.handle;
  return CUDA_SUCCESS;
}

/* Allocations from it stay until they are freed. */
CUresult pool_destroy(CUmemoryPool pool) {
  struct pool *p;
  CUresult r = find(pool, &p);
  if (r) return r;
  if (p->is_default) return CUDA_ERROR_INVALID_VALUE;
  struct device *d = p->device < 0 ? NULL : &sim.devices[p->device];
  if (!d)
    place_leave(p);
  else if (d->pool == p)
    d->pool = d->default_pool;
  object_die(&p->object);
  object_unref(&p->object);
  return CUDA_SUCCESS;
}

CUresult pool_trim(CUmemoryPool pool, size_t keep) {
  struct pool *p;
  CUresult r = find(pool, &p);
  if (!r) trim(p, keep);
  return r;
}

static int *reuse(struct pool *p, CUmemPool_attribute attribute) {
  return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
                 attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
             ? &p->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES]
             : NULL;
}

static uint64_t *number(struct pool *p, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &p->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return &p->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return &p->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return &p->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &p->used_high;
    default: return NULL;
  }
}

CUresult pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  struct pool *p;
  CUresult r = find(pool, &p);
  if (r) return r;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (reuse(p, attribute))
    *(int *)value = *reuse(p, attribute);
  else if (number(p, attribute))
    *(uint64_t *)value = *number(p, attribute);
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

/* Writing zero to a high mark sets it to the current value. */
CUresult pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  struct pool *p;
  CUresult r = find(pool, &p);
  if (r) return r;
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (reuse(p, attribute))
    *reuse(p, attribute) = *(const int *)value != 0;
  else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    p->threshold = *(const uint64_t *)value;
  else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !*(const uint64_t *)value)
    p->reserved_high = p->reserved;
  else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !*(const uint64_t *)value)
    p->used_high = p->used;
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

static CUresult check_location(const CUmemLocation *where) {
  if (where->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  return device_valid(where->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult pool_get_access(int *flags, CUmemoryPool pool, CUmemLocation *where) {
  struct pool *p;
  CUresult r = find(pool, &p);
  if (r) return r;
  if (!flags || !where) return CUDA_ERROR_INVALID_VALUE;
  r = check_location(where);
  if (!r) *flags = p->access[where->id];
  return r;
}

static CUresult check_access(const struct pool *p, const CUmemAccessDesc *a) {
  CUresult r = check_location(&a->location);
  if (r) return r;
  if (a->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE && a->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
    return CUDA_ERROR_INVALID_VALUE;
  /* The pool's own device cannot lose its access; drivers call that an invalid device. */
  if (a->location.id == p->device) return a->flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  return p->device < 0 || sim.options.peer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count) {
  struct pool *p;
  CUresult r = find(pool, &p);
  if (r) return r;
  if (!list || !count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count && !r; i++) r = check_access(p, &list[i]);
  for (size_t i = 0; i < count && !r; i++) p->access[list[i].location.id] = (unsigned char)list[i].flags;
  return r;
}
