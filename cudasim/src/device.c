/* The driver and its devices. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

CUresult driver_init(unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (sim.forked) return CUDA_ERROR_NOT_INITIALIZED;
  if (!sim.options.devices) return CUDA_ERROR_NO_DEVICE;
  sim.initialised = true;
  return CUDA_SUCCESS;
}

/* There is nothing for a profiler to see. */
CUresult driver_profile(void) { return CUDA_SUCCESS; }

CUresult driver_version(int *version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = (int)sim.options.version;
  return CUDA_SUCCESS;
}

/* There are no modules to load, but programs ask. The default became lazy with 12.2. */
CUresult driver_loading_mode(int *mode) {
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  const char *wanted = getenv("CUDA_MODULE_LOADING");
  bool lazy = wanted && !strcmp(wanted, "LAZY"), eager = wanted && !strcmp(wanted, "EAGER");
  if (!lazy && !eager) lazy = sim.options.version >= 12020;
  *mode = lazy ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

bool device_valid(CUdevice device) { return device >= 0 && (uint64_t)device < sim.options.devices; }

/* It uses the page tables of the host, and so reaches all memory of the host. The host reaches managed
 * memory on the device; what the device allocated for itself it reaches no more than elsewhere. */
bool device_coherent(CUdevice device) { return (uint64_t)device < sim.options.coherent; }

static CUresult check(const void *out, CUdevice device) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  return device_valid(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult device_get(CUdevice *device, int ordinal) {
  CUresult r = check(device, ordinal);
  if (!r) *device = ordinal;
  return r;
}

CUresult device_count(int *count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = (int)sim.options.devices;
  return CUDA_SUCCESS;
}

CUresult device_name(char *name, int size, CUdevice device) {
  CUresult r = check(size > 0 ? name : NULL, device);
  if (!r) snprintf(name, (size_t)size, "cudasim device %d", device);
  return r;
}

CUresult device_uuid(CUuuid *uuid, CUdevice device) {
  CUresult r = check(uuid, device);
  if (!r) {
    memcpy(uuid->bytes, "cudasim device \0", sizeof uuid->bytes);
    uuid->bytes[15] = (unsigned char)device;
  }
  return r;
}

CUresult device_total_memory(size_t *bytes, CUdevice device) {
  CUresult r = check(bytes, device);
  if (!r) *bytes = sim.options.memory;
  return r;
}

CUresult device_can_access_peer(int *can, CUdevice device, CUdevice peer) {
  CUresult r = check(can, device);
  if (!r) r = check(can, peer);
  if (!r) *can = device != peer && sim.options.peer;
  return r;
}

CUresult device_bus_id(char *id, int size, CUdevice device) {
  CUresult r = check(size > 0 ? id : NULL, device);
  if (!r && snprintf(id, (size_t)size, "0000:%02X:00.0", device + 1) >= size) return CUDA_ERROR_INVALID_VALUE;
  return r;
}

CUresult device_by_bus_id(CUdevice *device, const char *id) {
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (!device || !id) return CUDA_ERROR_INVALID_VALUE;
  if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3 &&
      sscanf(id, "%x:%x.%x", &bus, &slot, &function) < 2)
    return CUDA_ERROR_INVALID_VALUE;
  if (domain || slot || function || !device_valid((CUdevice)bus - 1)) return CUDA_ERROR_INVALID_DEVICE;
  *device = (CUdevice)bus - 1;
  return CUDA_SUCCESS;
}

/* A device of compute capability 8.0. Attributes without a line are those of features
 * that are not there: 0. */
static const int attributes[] = {
    [1] = 1024,        /* MAX_THREADS_PER_BLOCK */
    [2] = 1024,        /* MAX_BLOCK_DIM_X */
    [3] = 1024,        /* MAX_BLOCK_DIM_Y */
    [4] = 64,          /* MAX_BLOCK_DIM_Z */
    [5] = 2147483647,  /* MAX_GRID_DIM_X */
    [6] = 65535,       /* MAX_GRID_DIM_Y */
    [7] = 65535,       /* MAX_GRID_DIM_Z */
    [8] = 49152,       /* MAX_SHARED_MEMORY_PER_BLOCK */
    [9] = 65536,       /* TOTAL_CONSTANT_MEMORY */
    [10] = 32,         /* WARP_SIZE */
    [11] = 2147483647, /* MAX_PITCH */
    [12] = 65536,      /* MAX_REGISTERS_PER_BLOCK */
    [13] = 1410000,    /* CLOCK_RATE */
    [14] = 512,        /* TEXTURE_ALIGNMENT */
    [15] = 1,          /* GPU_OVERLAP */
    [16] = 108,        /* MULTIPROCESSOR_COUNT */
    [19] = 1,          /* CAN_MAP_HOST_MEMORY */
    [30] = 512,        /* SURFACE_ALIGNMENT */
    [31] = 1,          /* CONCURRENT_KERNELS */
    [36] = 1215000,    /* MEMORY_CLOCK_RATE */
    [37] = 5120,       /* GLOBAL_MEMORY_BUS_WIDTH */
    [38] = 41943040,   /* L2_CACHE_SIZE */
    [39] = 2048,       /* MAX_THREADS_PER_MULTIPROCESSOR */
    [40] = 2,          /* ASYNC_ENGINE_COUNT */
    [41] = 1,          /* UNIFIED_ADDRESSING */
    [51] = 32,         /* TEXTURE_PITCH_ALIGNMENT */
    [75] = 8,          /* COMPUTE_CAPABILITY_MAJOR */
    [76] = 0,          /* COMPUTE_CAPABILITY_MINOR */
    [78] = 1,          /* STREAM_PRIORITIES_SUPPORTED */
    [79] = 1,          /* GLOBAL_L1_CACHE_SUPPORTED */
    [80] = 1,          /* LOCAL_L1_CACHE_SUPPORTED */
    [81] = 167936,     /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
    [82] = 65536,      /* MAX_REGISTERS_PER_MULTIPROCESSOR */
    [87] = 2,          /* SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO */
    [90] = 1,          /* COMPUTE_PREEMPTION_SUPPORTED */
    [91] = 1,          /* CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM */
    [97] = 166912,     /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    [99] = 1,          /* HOST_REGISTER_SUPPORTED */
    [106] = 32,        /* MAX_BLOCKS_PER_MULTIPROCESSOR */
    [111] = 1024,      /* RESERVED_SHARED_MEMORY_PER_BLOCK */
    [125] = 1,         /* IPC_EVENT_SUPPORTED */
    [150] = 0,         /* no version 12 has more */
};

static int host_pools(void) { return sim.options.version >= 13000 && sim.options.pools; }

static int attribute_value(int attribute, CUdevice device) {
  switch (attribute) {
    case 33: return device + 1;                                                   /* PCI_BUS_ID */
    case 83: return (int)sim.options.managed;                                     /* MANAGED_MEMORY */
    case 85: return device;                                                       /* MULTI_GPU_BOARD_GROUP_ID */
    case 86: return device_coherent(device);                                      /* HOST_NATIVE_ATOMIC_SUPPORTED */
    case 88: return device_coherent(device);                                      /* PAGEABLE_MEMORY_ACCESS */
    case 89: return sim.options.managed && sim.options.concurrent_managed_access; /* CONCURRENT_MANAGED_ACCESS */
    case 100: return device_coherent(device);             /* PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES */
    case 101: return device_coherent(device);             /* DIRECT_MANAGED_MEM_ACCESS_FROM_HOST */
    case 113: return (int)sim.options.read_only_register; /* READ_ONLY_HOST_REGISTER_SUPPORTED */
    case 115: return (int)sim.options.pools;              /* MEMORY_POOLS_SUPPORTED */
    case 142: return host_pools();                        /* HOST_NUMA_MEMORY_POOLS_SUPPORTED */
    case 144: return host_pools();                        /* HOST_MEMORY_POOLS_SUPPORTED */
    default: return attributes[attribute];
  }
}

CUresult device_attribute(int *value, int attribute, CUdevice device) {
  const int count = sizeof attributes / sizeof *attributes;
  CUresult r = check(attribute >= 1 && attribute < count ? value : NULL, device);
  if (!r) *value = attribute_value(attribute, device);
  return r;
}

CUresult device_capability(int *major, int *minor, CUdevice device) {
  CUresult r = check(major && minor ? major : NULL, device);
  if (!r) {
    *major = attributes[75];
    *minor = attributes[76];
  }
  return r;
}
