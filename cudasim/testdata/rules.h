/* The rules of the simulated driver, each a function: statements of the CUDA driver API manual, and
 * of cudasim.h.
 *
 * The driver API is declared here anew, from the manual, and not included from
 * the simulator: two independent readings of the ABI have to agree. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rules ---- */

struct rule {
  const char *name;
  const char *options; /* of the machine, as in the environment variable CUDASIM */
  const char *leaks;   /* the start of a line that the report at exit shall have; NULL: no leaks */
  const char *missing; /* an exported function that the library lacks */
  bool violates;       /* the report shall have violations; otherwise none */
  bool races;          /* copies really race, which the thread sanitizer rightly reports */
  bool unreported;     /* the rule sets options of its own, without a report */
  void (*peer)(void);  /* for another process, which the rule starts */
  bool peer_violates;
  void (*check)(void);
  struct rule *next;
};

void add_rule(struct rule *rule);

/* RULE(name, options, further fields) { ... } */
#define RULE(id, ...)                                          \
  static void id(void);                                        \
  __attribute__((constructor)) static void add_##id(void) {    \
    static struct rule rule = {#id, __VA_ARGS__, .check = id}; \
    add_rule(&rule);                                           \
  }                                                            \
  static void id(void)

/* ---- checks: the first that fails ends the process ---- */

_Noreturn void fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void check_result(const char *file, int line, const char *call, int got, int want);

#define IS(call, result) check_result(__FILE__, __LINE__, #call, call, result)
#define OK(call) IS(call, CUDA_SUCCESS)
#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) fail(__FILE__, __LINE__, "not so: %s", #condition); \
  } while (0)
/* An event that must never happen cannot be waited for. But a wrong one would happen soon, so this
 * polls for a while; a correct simulator never fails it. */
#define STAYS(condition)                                      \
  do {                                                        \
    for (int i_ = 0; i_ < 10; i_++, nap(1)) CHECK(condition); \
  } while (0)
#define STAYS_PENDING(query) STAYS((query) == CUDA_ERROR_NOT_READY)
#define SAME(a, b)                                                                    \
  do {                                                                                \
    long long a_ = (long long)(a), b_ = (long long)(b);                               \
    if (a_ != b_) fail(__FILE__, __LINE__, "%s is %lld, %s is %lld", #a, a_, #b, b_); \
  } while (0)

/* ---- the driver API ---- */

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct {
  char bytes[16];
} CUuuid;
typedef struct {
  char bytes[64];
} CUipcMemHandle;
typedef struct {
  char bytes[64];
} CUipcEventHandle;
typedef void (*CUhostFn)(void *user_data);
typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *user_data);

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_MAP_FAILED = 205,
  CUDA_ERROR_ALREADY_MAPPED = 208,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

enum {
  CU_EVENT_DEFAULT = 0,
  CU_EVENT_BLOCKING_SYNC = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_EVENT_INTERPROCESS = 4,

  CU_STREAM_DEFAULT = 0,
  CU_STREAM_NON_BLOCKING = 1,

  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
  CU_EVENT_RECORD_EXTERNAL = 1,
  CU_EVENT_WAIT_EXTERNAL = 1,

  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
  CU_CTX_SCHED_BLOCKING_SYNC = 4,

  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_MEMHOSTALLOC_DEVICEMAP = 2,
  CU_MEMHOSTALLOC_WRITECOMBINED = 4,

  CU_MEM_ATTACH_GLOBAL = 1,

  CU_MEMORYTYPE_HOST = 1,
  CU_MEMORYTYPE_DEVICE = 2,

  CU_POINTER_ATTRIBUTE_CONTEXT = 1,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
  CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
  CU_POINTER_ATTRIBUTE_MAPPED = 13,
  CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
  CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,

  CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78,
  CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
  CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED = 125,

  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
  CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
  CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
  CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,

  CU_MEM_ALLOCATION_TYPE_PINNED = 1,
  CU_MEM_LOCATION_TYPE_DEVICE = 1,
  CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,

  CU_GET_PROC_ADDRESS_DEFAULT = 0,
  CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1,
  CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2,
  CU_GET_PROC_ADDRESS_SUCCESS = 0,
  CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
  CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
};

#define CU_STREAM_LEGACY ((CUstream)1)
#define CU_STREAM_PER_THREAD ((CUstream)2)

typedef struct {
  int type;
  int id;
} CUmemLocation;

typedef struct {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void *win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;

CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuGetErrorName(CUresult error, const char **name);
CUresult cuGetErrorString(CUresult error, const char **text);
CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGetName(char *name, int size, CUdevice device);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer);
CUresult cuDeviceGetPCIBusId(char *id, int size, CUdevice device);
CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *id);

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxAttach(CUcontext *context, unsigned flags);
CUresult cuCtxDetach(CUcontext context);
CUresult cuModuleGetLoadingMode(int *mode);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxSynchronize(void);
CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version);
CUresult cuCtxGetId(CUcontext context, unsigned long long *id);
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
CUresult cuCtxDisablePeerAccess(CUcontext peer);
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);

CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t size);
CUresult cuMemFree_v2(CUdeviceptr memory);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr memory);
CUresult cuMemAllocManaged(CUdeviceptr *memory, size_t size, unsigned flags);
CUresult cuMemAllocHost_v2(void **memory, size_t size);
CUresult cuMemHostAlloc(void **memory, size_t size, unsigned flags);
CUresult cuMemFreeHost(void *memory);
CUresult cuMemHostRegister_v2(void *memory, size_t size, unsigned flags);
CUresult cuMemHostUnregister(void *memory);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *memory, unsigned flags);
CUresult cuMemHostGetFlags(unsigned *flags, void *memory);
CUresult cuMemPrefetchAsync(CUdeviceptr memory, size_t size, CUdevice device, CUstream stream);
CUresult cuMemAdvise(CUdeviceptr memory, size_t size, int advice, CUdevice device);
CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr memory);
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr memory);

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr memory);
CUresult cuIpcOpenMemHandle(CUdeviceptr *memory, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *memory, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr memory);
CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event);
CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle);

CUresult cuMemAllocAsync(CUdeviceptr *memory, size_t size, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *memory, size_t size, CUmemoryPool pool, CUstream stream);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool);
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count);
CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location);

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size);
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream);
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size,
                           CUstream stream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream);
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count);
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count);
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream);
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
CUresult cuMemsetD8_v2_ptds(CUdeviceptr to, unsigned char value, size_t count);
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t size);
CUresult cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t size);

CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamQuery_ptsz(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamSynchronize_ptsz(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuStreamGetFlags(CUstream stream, unsigned *flags);
CUresult cuStreamGetPriority(CUstream stream, int *priority);
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user_data, unsigned flags);
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user_data);
CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *user_data);

CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id);
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                   const CUgraphNode **nodes, size_t *count);
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id, CUgraph *graph,
                                   const CUgraphNode **nodes, const void **edges, size_t *count);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);
CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
CUresult cuGraphNodeGetType(CUgraphNode node, int *type);

CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream);
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);

/* ---- the control of the simulator ---- */

int cudasim_configure(const char *options);
void cudasim_fail(const char *function, uint64_t k, int result);
void cudasim_fail_times(const char *function, uint64_t k, uint64_t times, int result);
int cudasim_failed(const char **function);
void cudasim_pause(void);
void cudasim_resume(void);
int cudasim_event_hold(void *event);
int cudasim_event_fire(void *event);
uint64_t cudasim_calls(const char *function);
void cudasim_reset_counters(void);
void cudasim_host_read(const void *address, size_t size);
void cudasim_host_write(void *address, size_t size);
void cudasim_drain(void);
void cudasim_forget_violations(void);
size_t cudasim_report(char *out, size_t size);
int cudasim_write_report(void);
void cudasim_shut_down(void);

/* ---- helpers ---- */

/* Initialises the driver and makes the primary context of a device current on
 * this thread. It is released when the rule has ended. */
CUcontext use(int ordinal);

CUstream new_stream(void); /* of CU_STREAM_NON_BLOCKING */
CUstream new_blocking_stream(void);
CUevent new_event(void); /* without timing */
CUdeviceptr new_memory(size_t size);
unsigned char *new_pinned(size_t size);

/* Of device memory, read back by a copy that waits. */
bool is_filled(CUdeviceptr memory, unsigned char value, size_t size);
bool all_bytes(const unsigned char *bytes, unsigned char value, size_t size);

/* A number of the report: of an array, the index-th. */
long long reported(const char *key, int index);
/* Whether the list under the key has an entry with this text in it. */
bool reports(const char *list, const char *text);

/* A gate holds back a stream: work queued behind it is not done before it opens.
 * That needs nothing of the simulator, and holds on any GPU. */
struct gate {
  atomic_bool entered, open;
};
void close_gate(struct gate *gate, CUstream stream);
void open_gate(struct gate *gate);

/* Queues a function that sets *done, but takes its time before: a call that
 * should have waited for it and did not meets *done unset. */
void queue_late(atomic_bool *done, CUstream stream);

/* Runs a function on another thread. */
struct thread {
  pthread_t id;
  void (*run)(void *);
  void *data;
};
void start(struct thread *thread, void (*run)(void *), void *data);
void join(struct thread *thread);
void on_thread(void (*run)(void *), void *data); /* and waits */

/* Whether the host can read and write this byte. */
bool host_reads(const volatile void *address);
bool host_writes(volatile void *address);

/* Another process: this program, started anew for the rule's function peer. Its report must have no
 * leaks and, unless the rule allows them, no violations. */
struct peer {
  int id, in, out;
};
void start_peer(struct peer *peer);
void end_peer(struct peer *peer); /* waits until it has ended, without an error */
void kill_peer(struct peer *peer);
extern struct peer parent; /* of the peer */
void say(const struct peer *to, const void *bytes, size_t size);
void hear(const struct peer *from, void *bytes, size_t size);

double now(void); /* in seconds */
void nap(int milliseconds);
