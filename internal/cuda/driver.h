/* The CUDA driver as a table of functions, filled at run time, and one C function for each
 * operation that Go needs. Every symbol carries the prefix cdevice_v0_.
 *
 * A context is current per thread, and goroutines move between threads: each function here that
 * takes a context makes it current, calls, and restores the previous context, so that no thread,
 * ours or a foreigner's, is left changed. */
#pragma once

#include "functions.h"
#include "watch.h"

#define CDEVICE_V0_CUDA_MEMBER(need, name, symbol, parameters) int(*name) parameters;
#define CDEVICE_V0_CUDA_WATCH(name, result, parameters) result(*name) parameters;
struct cdevice_v0_cuda_driver {
  CDEVICE_V0_CUDA_FUNCTIONS(CDEVICE_V0_CUDA_MEMBER, , )
  CDEVICE_V0_CUDA_WATCHER(CDEVICE_V0_CUDA_WATCH)
};
typedef struct cdevice_v0_cuda_driver cdevice_v0_cuda_driver;

/* One number per function, so that results identify the call that failed. */
#define CDEVICE_V0_CUDA_NUMBER(need, name, symbol, parameters) cdevice_v0_cuda_call_##name,
enum { CDEVICE_V0_CUDA_FUNCTIONS(CDEVICE_V0_CUDA_NUMBER, , ) cdevice_v0_cuda_calls };

struct cdevice_v0_cuda_function {
  const char *name, *symbol;
  int needed;
};
extern const struct cdevice_v0_cuda_function cdevice_v0_cuda_functions[cdevice_v0_cuda_calls];

/* The result of a function of this header. */
typedef struct {
  int32_t code;   /* CUresult of the call that failed, or MISSING; 0 if none did */
  int32_t call;   /* the number of that call */
  uint64_t value; /* the requested value: a handle, an address, a flag */
} cdevice_v0_cuda_result;

enum {
  CDEVICE_V0_CUDA_MISSING = -1,  /* the driver has no such symbol */
  CDEVICE_V0_CUDA_GONE = 709,    /* CUDA_ERROR_CONTEXT_IS_DESTROYED; also of context 0 */
  CDEVICE_V0_CUDA_NO_MEMORY = 2, /* CUDA_ERROR_OUT_OF_MEMORY */
};

/* A piece of a copy: device.Range. */
typedef struct {
  uint64_t dst, src;
  int64_t size;
} cdevice_v0_cuda_range;

typedef const cdevice_v0_cuda_driver* cdevice_v0_cuda_table;

/* Fills the table from the library at path. Returns NULL, or why the library cannot
 * be loaded, in `text`. A NEEDED symbol that it lacks is answered in *missing. */
const char* cdevice_v0_cuda_load(const char* path, cdevice_v0_cuda_driver* driver, const char** missing, char* text,
                                 size_t size);

/* What a library has, found without a call of it. */
typedef struct {
  unsigned char absent[cdevice_v0_cuda_calls];
  char file[1024]; /* the path that the loader found; empty if the system cannot say */
} cdevice_v0_cuda_library;

/* Loads the library at path, and keeps it. Returns NULL, or why it cannot be loaded, in `text`. */
const char* cdevice_v0_cuda_inspect(const char* path, cdevice_v0_cuda_library* out, char* text, size_t size);

/* Whether the library at path defines the symbol. */
int cdevice_v0_cuda_has(const char* path, const char* symbol);

/* Without a context. */
cdevice_v0_cuda_result cdevice_v0_cuda_init(cdevice_v0_cuda_table);
cdevice_v0_cuda_result cdevice_v0_cuda_version(cdevice_v0_cuda_table);
const char* cdevice_v0_cuda_error_name(cdevice_v0_cuda_table, int code);
const char* cdevice_v0_cuda_error_text(cdevice_v0_cuda_table, int code);
cdevice_v0_cuda_result cdevice_v0_cuda_device_count(cdevice_v0_cuda_table);
cdevice_v0_cuda_result cdevice_v0_cuda_device_get(cdevice_v0_cuda_table, int ordinal);
cdevice_v0_cuda_result cdevice_v0_cuda_device_name(cdevice_v0_cuda_table, int device, char* out, int size);
cdevice_v0_cuda_result cdevice_v0_cuda_device_uuid(cdevice_v0_cuda_table, int device, unsigned char* out);
cdevice_v0_cuda_result cdevice_v0_cuda_device_bus_id(cdevice_v0_cuda_table, int device, char* out, int size);
cdevice_v0_cuda_result cdevice_v0_cuda_device_memory(cdevice_v0_cuda_table, int device);
cdevice_v0_cuda_result cdevice_v0_cuda_device_attribute(cdevice_v0_cuda_table, int device, int attribute);
cdevice_v0_cuda_result cdevice_v0_cuda_device_can_access(cdevice_v0_cuda_table, int device, int peer);
/* The release threshold of the device's default pool, in bytes. */
cdevice_v0_cuda_result cdevice_v0_cuda_pool_default_keeps(cdevice_v0_cuda_table, int device);
cdevice_v0_cuda_result cdevice_v0_cuda_context_retain(cdevice_v0_cuda_table, int device);
cdevice_v0_cuda_result cdevice_v0_cuda_context_release(cdevice_v0_cuda_table, int device);

/* The id of the context, which no later one has; 0 if the driver has no ids. */
cdevice_v0_cuda_result cdevice_v0_cuda_context_id(cdevice_v0_cuda_table, uintptr_t context);
/* value is 1 if the primary context is active and still the one with the id: then it was not
 * reset. Without ids, stream is one that was made in it. */
cdevice_v0_cuda_result cdevice_v0_cuda_context_lives(cdevice_v0_cuda_table, int device, uintptr_t context, uint64_t id,
                                                     uintptr_t stream);

/* In a context. */
cdevice_v0_cuda_result cdevice_v0_cuda_context_synchronize(cdevice_v0_cuda_table, uintptr_t context);
/* Synchronises unless a capture is visible, as in capturing; then value is 1. *asked becomes 1 when the driver
 * has been asked about the streams, which may end from then on. */
cdevice_v0_cuda_result cdevice_v0_cuda_context_synchronize_uncaptured(cdevice_v0_cuda_table, uintptr_t context,
                                                                      const uintptr_t* streams, size_t count,
                                                                      int32_t* asked);
cdevice_v0_cuda_result cdevice_v0_cuda_context_access(cdevice_v0_cuda_table, uintptr_t context, uintptr_t peer);
cdevice_v0_cuda_result cdevice_v0_cuda_context_priorities(cdevice_v0_cuda_table, uintptr_t context, int* least,
                                                          int* greatest);

cdevice_v0_cuda_result cdevice_v0_cuda_memory_info(cdevice_v0_cuda_table, uintptr_t context, uint64_t* total);
cdevice_v0_cuda_result cdevice_v0_cuda_memory_new(cdevice_v0_cuda_table, uintptr_t context, size_t size);
cdevice_v0_cuda_result cdevice_v0_cuda_memory_free(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p);
cdevice_v0_cuda_result cdevice_v0_cuda_managed_new(cdevice_v0_cuda_table, uintptr_t context, size_t size);
cdevice_v0_cuda_result cdevice_v0_cuda_managed_prefetch(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p,
                                                        size_t size, int device, uintptr_t stream);
cdevice_v0_cuda_result cdevice_v0_cuda_host_new(cdevice_v0_cuda_table, uintptr_t context, size_t size);
cdevice_v0_cuda_result cdevice_v0_cuda_host_free(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p);
cdevice_v0_cuda_result cdevice_v0_cuda_host_register(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p, size_t size,
                                                     unsigned flags);
cdevice_v0_cuda_result cdevice_v0_cuda_host_unregister(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p);

/* Device memory and events of several processes. */
cdevice_v0_cuda_result cdevice_v0_cuda_memory_handle(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p,
                                                     struct cdevice_v0_cuda_handle* out);
cdevice_v0_cuda_result cdevice_v0_cuda_memory_open(cdevice_v0_cuda_table, uintptr_t context,
                                                   const struct cdevice_v0_cuda_handle* handle);
cdevice_v0_cuda_result cdevice_v0_cuda_memory_close(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p);
cdevice_v0_cuda_result cdevice_v0_cuda_shared_event_new(cdevice_v0_cuda_table, uintptr_t context);
cdevice_v0_cuda_result cdevice_v0_cuda_event_handle(cdevice_v0_cuda_table, uintptr_t context, uintptr_t event,
                                                    struct cdevice_v0_cuda_handle* out);
cdevice_v0_cuda_result cdevice_v0_cuda_event_open(cdevice_v0_cuda_table, uintptr_t context,
                                                  const struct cdevice_v0_cuda_handle* handle);

cdevice_v0_cuda_result cdevice_v0_cuda_pool_new(cdevice_v0_cuda_table, uintptr_t context, int device);
cdevice_v0_cuda_result cdevice_v0_cuda_pool_keep(cdevice_v0_cuda_table, uintptr_t context, uintptr_t pool,
                                                 uint64_t bytes);
cdevice_v0_cuda_result cdevice_v0_cuda_pool_free(cdevice_v0_cuda_table, uintptr_t context, uintptr_t pool);
cdevice_v0_cuda_result cdevice_v0_cuda_pool_access(cdevice_v0_cuda_table, uintptr_t context, uintptr_t pool,
                                                   int device);
cdevice_v0_cuda_result cdevice_v0_cuda_pool_trim(cdevice_v0_cuda_table, uintptr_t context, uintptr_t pool);
cdevice_v0_cuda_result cdevice_v0_cuda_pool_memory_new(cdevice_v0_cuda_table, uintptr_t context, uintptr_t pool,
                                                       size_t size, uintptr_t stream);
cdevice_v0_cuda_result cdevice_v0_cuda_pool_memory_free(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p,
                                                        uintptr_t stream);

/* Copies, and waits as cuMemcpy does. */
cdevice_v0_cuda_result cdevice_v0_cuda_copy_now(cdevice_v0_cuda_table, uintptr_t context, uintptr_t dst, uintptr_t src,
                                                size_t size);
/* Enqueues all ranges. After an error, value is the index of the one that failed;
 * those before it are enqueued. */
cdevice_v0_cuda_result cdevice_v0_cuda_copy(cdevice_v0_cuda_table, uintptr_t context,
                                            const cdevice_v0_cuda_range* ranges, size_t count, uintptr_t stream);
/* The same between memory of two contexts, or inside one that is not the stream's. */
cdevice_v0_cuda_result cdevice_v0_cuda_copy_peer(cdevice_v0_cuda_table, uintptr_t context, uintptr_t dst_context,
                                                 uintptr_t src_context, const cdevice_v0_cuda_range* ranges,
                                                 size_t count, uintptr_t stream);

/* Whose memory the two ends of a range are: the ordinal of a device, or HOST_END for managed memory
 * and all memory of the host. */
typedef struct {
  int32_t dst, src;
} cdevice_v0_cuda_ends;
enum { CDEVICE_V0_CUDA_HOST_END = -1 };
cdevice_v0_cuda_result cdevice_v0_cuda_find_ends(cdevice_v0_cuda_table, uintptr_t context,
                                                 const cdevice_v0_cuda_range* ranges, size_t count,
                                                 cdevice_v0_cuda_ends* out);
cdevice_v0_cuda_result cdevice_v0_cuda_memset(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p, unsigned char byte,
                                              size_t size, uintptr_t stream);

cdevice_v0_cuda_result cdevice_v0_cuda_stream_new(cdevice_v0_cuda_table, uintptr_t context, int priority);
cdevice_v0_cuda_result cdevice_v0_cuda_stream_free(cdevice_v0_cuda_table, uintptr_t context, uintptr_t stream);
cdevice_v0_cuda_result cdevice_v0_cuda_stream_query(cdevice_v0_cuda_table, uintptr_t context, uintptr_t stream);
cdevice_v0_cuda_result cdevice_v0_cuda_stream_synchronize(cdevice_v0_cuda_table, uintptr_t context, uintptr_t stream);
cdevice_v0_cuda_result cdevice_v0_cuda_stream_wait(cdevice_v0_cuda_table, uintptr_t context, uintptr_t stream,
                                                   uintptr_t event);

cdevice_v0_cuda_result cdevice_v0_cuda_event_new(cdevice_v0_cuda_table, uintptr_t context);
cdevice_v0_cuda_result cdevice_v0_cuda_event_free(cdevice_v0_cuda_table, uintptr_t context, uintptr_t event);
cdevice_v0_cuda_result cdevice_v0_cuda_event_record(cdevice_v0_cuda_table, uintptr_t context, uintptr_t event,
                                                    uintptr_t stream);
cdevice_v0_cuda_result cdevice_v0_cuda_event_query(cdevice_v0_cuda_table, uintptr_t context, uintptr_t event);
cdevice_v0_cuda_result cdevice_v0_cuda_event_synchronize(cdevice_v0_cuda_table, uintptr_t context, uintptr_t event);

/* Calls that the library makes for itself, and not for its caller: a simulated driver must not count what they
 * answer as known to the program, but as known about the memory that was given back under these keys. 0 is
 * no key. */
cdevice_v0_cuda_result cdevice_v0_cuda_event_query_for(cdevice_v0_cuda_table, uintptr_t context, uintptr_t event,
                                                       uintptr_t key);
cdevice_v0_cuda_result cdevice_v0_cuda_stream_query_for(cdevice_v0_cuda_table, uintptr_t context, uintptr_t stream,
                                                        uintptr_t key);
cdevice_v0_cuda_result cdevice_v0_cuda_context_synchronize_for(cdevice_v0_cuda_table, uintptr_t context,
                                                               const uintptr_t* streams, size_t count, int32_t* asked,
                                                               uintptr_t* keys, size_t key_count);
/* The key is the address. */
cdevice_v0_cuda_result cdevice_v0_cuda_pool_memory_free_for(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p,
                                                            uintptr_t stream);
/* See watch.go. */
void cdevice_v0_cuda_give_back(cdevice_v0_cuda_table, uintptr_t key);
void cdevice_v0_cuda_keep(cdevice_v0_cuda_table, uintptr_t what, size_t size);
void cdevice_v0_cuda_hand_out(cdevice_v0_cuda_table, uintptr_t what, size_t size);
void cdevice_v0_cuda_free_later(cdevice_v0_cuda_table, uintptr_t p);
void cdevice_v0_cuda_publish(cdevice_v0_cuda_table, uintptr_t key);
uintptr_t cdevice_v0_cuda_act(cdevice_v0_cuda_table, uintptr_t key);
void cdevice_v0_cuda_forget(cdevice_v0_cuda_table, uintptr_t key);
void cdevice_v0_cuda_read(cdevice_v0_cuda_table, uintptr_t p, size_t size, uintptr_t key);
void cdevice_v0_cuda_cover(cdevice_v0_cuda_table, uintptr_t key, uintptr_t context);
int cdevice_v0_cuda_wants_callers(cdevice_v0_cuda_table);
void cdevice_v0_cuda_caller(cdevice_v0_cuda_table, const char* text);

/* The driver's information about an address. */
typedef struct {
  uint64_t start, size; /* of the allocation */
  int32_t memory;       /* CU_MEMORYTYPE_HOST 1, _DEVICE 2; 0 if the driver does not know the address */
  int32_t ordinal;      /* of its device */
  uint32_t managed;
} cdevice_v0_cuda_pointer;
cdevice_v0_cuda_result cdevice_v0_cuda_pointer_query(cdevice_v0_cuda_table, uintptr_t context, uintptr_t p,
                                                     cdevice_v0_cuda_pointer* out);

/* Enqueues function(data), which may not call the driver. */
cdevice_v0_cuda_result cdevice_v0_cuda_launch_host(cdevice_v0_cuda_table, uintptr_t context, uintptr_t stream,
                                                   void (*function)(void*), void* data);

/* A gate holds a stream back, for tests: work enqueued behind it waits until it is
 * opened. value is the gate, to be given to cdevice_v0_cuda_gate_open, once. */
cdevice_v0_cuda_result cdevice_v0_cuda_gate_new(cdevice_v0_cuda_table, uintptr_t context, uintptr_t stream);
void cdevice_v0_cuda_gate_open(uint64_t gate);
int cdevice_v0_cuda_gate_reached(
    uint64_t gate);              /* whether all work before it is done; not to be asked after the opening */
int cdevice_v0_cuda_gates(void); /* that are held, or opened and not passed */

/* Captures of streams. value is 1 if the legacy stream cannot be used because a blocking
 * stream captures, or if one of the streams captures. An error of one stream is answered
 * only if none captures. */
cdevice_v0_cuda_result cdevice_v0_cuda_capturing(cdevice_v0_cuda_table, uintptr_t context, const uintptr_t* streams,
                                                 size_t count);

/* For tests: captures a stream. The captured work is discarded. */
cdevice_v0_cuda_result cdevice_v0_cuda_capture_begin(cdevice_v0_cuda_table, uintptr_t context, uintptr_t stream,
                                                     int mode);
cdevice_v0_cuda_result cdevice_v0_cuda_capture_end(cdevice_v0_cuda_table, uintptr_t context, uintptr_t stream);
/* The capture mode of the calling thread, for tests. */
cdevice_v0_cuda_result cdevice_v0_cuda_capture_mode(cdevice_v0_cuda_table);

/* For tests: a stream that is ordered with the legacy default stream, and the end of
 * everything in a primary context. */
cdevice_v0_cuda_result cdevice_v0_cuda_stream_blocking(cdevice_v0_cuda_table, uintptr_t context);
cdevice_v0_cuda_result cdevice_v0_cuda_context_reset(cdevice_v0_cuda_table, int device);

/* The context that is current on the calling thread, for tests. */
uintptr_t cdevice_v0_cuda_current(cdevice_v0_cuda_table);
