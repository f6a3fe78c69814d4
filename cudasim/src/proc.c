/* cuGetProcAddress, and the functions that are not simulated. */
#include "sim.h"

#include <dlfcn.h>
#include <string.h>

#pragma GCC visibility push(default)
#define UNSUPPORTED(symbol, name)                                \
  CUresult symbol(void);                                         \
  CUresult symbol(void) {                                        \
    static struct call call = {name, 0, false, NULL};            \
    CUresult result = call_begin(&call, false, true, HERE);      \
    return call_end(result ? result : CUDA_ERROR_NOT_SUPPORTED); \
  }
#define STUB(base, suffix, since) UNSUPPORTED(base##suffix, #base)
#define STUB_PTDS(base, suffix, since) \
  UNSUPPORTED(base##suffix, #base) UNSUPPORTED(base##suffix##_ptds, #base)
#define STUB_PTSZ(base, suffix, since) \
  UNSUPPORTED(base##suffix, #base) UNSUPPORTED(base##suffix##_ptsz, #base)
#include "unsupported.h"
#undef STUB
#undef STUB_PTDS
#undef STUB_PTSZ
#pragma GCC visibility pop

struct name {
  const char *base, *symbol;
  int since;
  bool per_thread;
};

/* The per-thread variants came with 7.0. */
#define ROW(base, symbol, since) {base, symbol, since, false},
#define ROWS(base, symbol, since, suffix) {base, symbol, since, false}, {base, symbol suffix, since, true},

#define API(base, suffix, since, body, params, args) ROW(#base, #base #suffix, since)
#define API_EARLY(base, suffix, since, body, params, args) ROW(#base, #base #suffix, since)
#define API_PTDS(base, suffix, since, body, params, args) ROWS(#base, #base #suffix, since, "_ptds")
#define API_PTSZ(base, suffix, since, body, params, args) ROWS(#base, #base #suffix, since, "_ptsz")
#define STUB(base, suffix, since) ROW(#base, #base #suffix, since)
#define STUB_PTDS(base, suffix, since) ROWS(#base, #base #suffix, since, "_ptds")
#define STUB_PTSZ(base, suffix, since) ROWS(#base, #base #suffix, since, "_ptsz")

static const struct name names[] = {
#include "functions.h"
#include "unsupported.h"
    /* In CUDA 12 the name took the parameters of the other. */
    ROW("cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000)
    ROW("cuGetErrorName", "cuGetErrorName", 6000)
    ROW("cuGetErrorString", "cuGetErrorString", 6000)
    ROW("cuGetProcAddress", "cuGetProcAddress", 11030)
    ROWS("cuGetProcAddress", "cuGetProcAddress_v2", 12000, "_ptsz")
};

/* Exported functions are looked up with the dynamic linker, not in a table of addresses: a library
 * that was built without some functions then lacks them. The open handle also keeps the library
 * loaded under its workers. */
static void *library;

__attribute__((constructor)) static void open_self(void) {
  Dl_info info;
  if (dladdr(&sim, &info))
    library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);
}

static bool better(const struct name *a, const struct name *b) {
  return !b || a->since > b->since || (a->since == b->since && a->per_thread);
}

static CUdriverProcAddressQueryResult find(const char *symbol, int version, bool per_thread,
                                           void **function) {
  const struct name *best = NULL;
  bool known = false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const struct name *n = &names[i];
    if (strcmp(n->base, symbol) || (uint64_t)n->since > sim.options.version || (n->per_thread && !per_thread))
      continue;
    known = true;
    if (n->since <= version && (!n->per_thread || version >= 7000) && better(n, best)) best = n;
  }
  *function = best && library ? dlsym(library, best->symbol) : NULL;
  if (*function) return CU_GET_PROC_ADDRESS_SUCCESS;
  return known && !best ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

/* Without the lock of the machine, as the loader has its own: see caller.c. */
static CUresult get(const char *symbol, void **function, int version, uint64_t flags,
                    CUdriverProcAddressQueryResult *status) {
  const uint64_t all = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (!symbol || !function || flags & ~all || flags == all) return CUDA_ERROR_INVALID_VALUE;
  options_settle();
  bool valid = version >= 0 && (uint64_t)version <= sim.options.version;
  if (valid) *status = find(symbol, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, function);
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* As before version 12: a name that is not found is an error. */
CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  CUresult r = get(symbol, function, version, flags, &status);
  return r || !status ? r : CUDA_ERROR_NOT_FOUND;
}

/* A name that is not found is NULL, with a status for the reason. */
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  CUdriverProcAddressQueryResult ignored;
  return get(symbol, function, version, flags, status ? status : &ignored);
}

CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, uint64_t flags,
                                  CUdriverProcAddressQueryResult *status) {
  return cuGetProcAddress_v2(symbol, function, version,
                             flags ? flags : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, status);
}
