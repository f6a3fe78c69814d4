/* The functions of the driver, each found by its name in the library that is loaded. */
#include "rules.h"

#include <dlfcn.h>

static void* library;

void load_driver(void) {
  const char* path = getenv("CDEVICE_CUDA_DRIVER");
  if (path == NULL || *path == '\0') path = "libcuda.so.1";
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) stop("%s", dlerror());
}

void* find_function(const char* name) { return dlsym(library, name); }

static void* find(const char* name) {
  void* f = find_function(name);
  if (f == NULL) skip("the driver has no %s", name);
  return f;
}

#define API(base, suffix, since, body, params, args) DEFINE(base##suffix, params, args)
#define API_EARLY API
#define API_PTDS(base, suffix, since, body, params, args) \
  DEFINE(base##suffix, params, args)                      \
  DEFINE(base##suffix##_ptds, params, args)
#define API_PTSZ(base, suffix, since, body, params, args) \
  DEFINE(base##suffix, params, args)                      \
  DEFINE(base##suffix##_ptsz, params, args)
#define DEFINE(name, params, args)          \
  CUresult name params {                    \
    static void* _Atomic found;             \
    CUresult(*f) params;                    \
    void* p = found;                        \
    if (p == NULL) found = p = find(#name); \
    *(void**)&f = p;                        \
    return f args;                          \
  }
/* These end an object: under another name, so that the functions of that name can note it. */
#define cuStreamDestroy_v2 raw_cuStreamDestroy_v2
#define cuEventDestroy_v2 raw_cuEventDestroy_v2
#define cuMemFree_v2 raw_cuMemFree_v2
#define cuMemFreeHost raw_cuMemFreeHost
#define cuGraphDestroy raw_cuGraphDestroy
#define cuGraphExecDestroy raw_cuGraphExecDestroy
#define cuMemPoolDestroy raw_cuMemPoolDestroy
#include "../../../cudasim/src/functions.h"
#undef cuStreamDestroy_v2
#undef cuEventDestroy_v2
#undef cuMemFree_v2
#undef cuMemFreeHost
#undef cuGraphDestroy
#undef cuGraphExecDestroy
#undef cuMemPoolDestroy

#define END(name, what, type) \
  CUresult name(type object) { return ended(what, (const void*)object, raw_##name(object)); }
END(cuStreamDestroy_v2, STREAM, CUstream)
END(cuEventDestroy_v2, EVENT, CUevent)
END(cuMemFree_v2, MEMORY, CUdeviceptr)
END(cuMemFreeHost, PAGE_LOCKED, void*)
END(cuGraphDestroy, GRAPH, CUgraph)
END(cuGraphExecDestroy, EXECUTABLE, CUgraphExec)
END(cuMemPoolDestroy, POOL, CUmemoryPool)

DEFINE(cuGetErrorName, (CUresult error, const char** name), (error, name))
DEFINE(cuGetErrorString, (CUresult error, const char** text), (error, text))
DEFINE(cuGetProcAddress, (const char* symbol, void** function, int version, uint64_t flags),
       (symbol, function, version, flags))
DEFINE(cuGetProcAddress_v2,
       (const char* symbol, void** function, int version, uint64_t flags, CUdriverProcAddressQueryResult* status),
       (symbol, function, version, flags, status))
