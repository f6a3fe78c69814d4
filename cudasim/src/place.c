/* Pools of host memory and of managed memory, which came with version 13, and which pool
 * is the current one of a place. Pools of device memory are in pool.c. */
#include "sim.h"

/* A place is a location together with a kind of memory. The host is one NUMA node. */
enum {
  PINNED_HOST,
  PINNED_NUMA,
  MANAGED_ANYWHERE,
  MANAGED_HOST,
  MANAGED_NUMA,
  MANAGED_DEVICE, /* and as many as there are devices */
  PLACES = MANAGED_DEVICE + MAX_DEVICES,
  NO_PLACE
};

static struct pool *defaults[PLACES], *current[PLACES];

static int pinned_place(CUmemLocation where) {
  if (where.type == CU_MEM_LOCATION_TYPE_HOST) return PINNED_HOST;
  return where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && !where.id ? PINNED_NUMA : NO_PLACE;
}

static int managed_place(CUmemLocation where) {
  switch (where.type) {
    case CU_MEM_LOCATION_TYPE_NONE: return MANAGED_ANYWHERE;
    case CU_MEM_LOCATION_TYPE_HOST: return MANAGED_HOST;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA: return where.id ? NO_PLACE : MANAGED_NUMA;
    case CU_MEM_LOCATION_TYPE_DEVICE: return device_valid(where.id) ? MANAGED_DEVICE + where.id : NO_PLACE;
    default: return NO_PLACE;
  }
}

static int place_of(CUmemLocation where, int type) {
  if (type == CU_MEM_ALLOCATION_TYPE_MANAGED) return managed_place(where);
  return type == CU_MEM_ALLOCATION_TYPE_PINNED ? pinned_place(where) : NO_PLACE;
}

static bool is_of_device(CUmemLocation where, int type) {
  return type == CU_MEM_ALLOCATION_TYPE_PINNED && where.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

/* Every device reaches both kinds. The manual promises less for pools of the host, but
 * programs copy from and to them on a GPU without having asked for access. */
static CUresult pool_new_at(int place, struct pool **out) {
  CUresult r = pool_new(-1, out);
  if (r) return r;
  struct pool *p = *out;
  p->place = place;
  p->memory = place >= MANAGED_ANYWHERE ? MANAGED_MEMORY : HOST_MEMORY;
  for (int d = 0; d < MAX_DEVICES; d++) p->access[d] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

static CUresult check(int place, int type) {
  if (!sim.options.pools) return CUDA_ERROR_NOT_SUPPORTED;
  if (place == NO_PLACE) return CUDA_ERROR_INVALID_VALUE;
  const bool there = type != CU_MEM_ALLOCATION_TYPE_MANAGED || sim.options.managed;
  return there ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult open_place(int place) {
  if (defaults[place]) return CUDA_SUCCESS;
  CUresult r = pool_new_at(place, &defaults[place]);
  if (r) return r;
  defaults[place]->is_default = true;
  current[place] = defaults[place];
  return CUDA_SUCCESS;
}

static CUresult find(CUmemoryPool *pool, const CUmemLocation *where, int type, struct pool **of) {
  if (!pool || !where) return CUDA_ERROR_INVALID_VALUE;
  const bool pinned = type == CU_MEM_ALLOCATION_TYPE_PINNED;
  if (pinned && where->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) return CUDA_ERROR_NOT_SUPPORTED;
  const int place = place_of(*where, type);
  CUresult r = check(place, type);
  if (!r) r = open_place(place);
  if (!r) *pool = (CUmemoryPool)of[place]->object.handle;
  return r;
}

CUresult place_default(CUmemoryPool *pool, CUmemLocation *where, int type) {
  if (where && is_of_device(*where, type) && device_valid(where->id)) return pool_default(pool, where->id);
  return find(pool, where, type, defaults);
}

CUresult place_pool(CUmemoryPool *pool, CUmemLocation *where, int type) {
  if (where && is_of_device(*where, type) && device_valid(where->id)) return pool_of_device(pool, where->id);
  return find(pool, where, type, current);
}

CUresult place_set_pool(CUmemLocation *where, int type, CUmemoryPool pool) {
  if (!where) return CUDA_ERROR_INVALID_VALUE;
  if (is_of_device(*where, type)) return pool_set_for_device(where->id, pool);
  const int place = place_of(*where, type);
  CUresult r = check(place, type);
  if (!r) r = open_place(place);
  if (r) return r;
  struct pool *p = object_find(pool, POOL);
  if (!p || p->device >= 0 || p->place != place) return CUDA_ERROR_INVALID_VALUE;
  current[place] = p;
  return CUDA_SUCCESS;
}

void place_leave(const struct pool *p) {
  if (current[p->place] == p) current[p->place] = defaults[p->place];
}

bool place_makes(const CUmemPoolProps *props) {
  return sim.options.version >= 13000 && !is_of_device(props->location, props->allocType);
}

/* Managed memory has no limit of its own, and neither kind is shared between processes. */
static CUresult check_props(const CUmemPoolProps *props) {
  const bool managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (managed && (props->maxSize || props->usage)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < sizeof props->reserved; i++)
    if (props->reserved[i]) return CUDA_ERROR_INVALID_VALUE;
  if (!props->handleTypes) return CUDA_SUCCESS;
  const bool could = !managed && props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  return could ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult place_create(CUmemoryPool *pool, const CUmemPoolProps *props) {
  struct pool *p;
  const int place = place_of(props->location, props->allocType);
  CUresult r = check(place, props->allocType);
  if (!r) r = check_props(props);
  if (!r) r = open_place(place);
  if (!r) r = pool_new_at(place, &p);
  if (r) return r;
  if (props->maxSize) p->limit = props->maxSize;
  ledger_object(&p->object);
  *pool = (CUmemoryPool)p->object.handle;
  return CUDA_SUCCESS;
}
