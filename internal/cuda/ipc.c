/* Device memory and events that several processes of a machine use. */
#include "call.h"

_Static_assert(sizeof(struct cdevice_v0_cuda_handle) == 64, "CUipcMemHandle, CUipcEventHandle");

result cdevice_v0_cuda_memory_handle(table d, uintptr_t context, uintptr_t p, struct cdevice_v0_cuda_handle* out) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuIpcGetMemHandle, out, p));
}

enum { lazy_peer_access = 1 }; /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: the only flag, and needed */

result cdevice_v0_cuda_memory_open(table d, uintptr_t context, const struct cdevice_v0_cuda_handle* handle) {
  RELAXED_MAKE_IN_CONTEXT(d, context, cuIpcOpenMemHandle, *handle, lazy_peer_access);
}

result cdevice_v0_cuda_memory_close(table d, uintptr_t context, uintptr_t p) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuIpcCloseMemHandle, p));
}

/* Those of other events, and CU_EVENT_INTERPROCESS, which must be without timing. */
enum { shared_event_flags = 1 | 2 | 4 };

result cdevice_v0_cuda_shared_event_new(table d, uintptr_t context) {
  RELAXED_MAKE_IN_CONTEXT(d, context, cuEventCreate, shared_event_flags);
}

result cdevice_v0_cuda_event_handle(table d, uintptr_t context, uintptr_t event, struct cdevice_v0_cuda_handle* out) {
  RELAXED_IN_CONTEXT(d, context, r, CALL(&r, d, cuIpcGetEventHandle, out, event));
}

result cdevice_v0_cuda_event_open(table d, uintptr_t context, const struct cdevice_v0_cuda_handle* handle) {
  RELAXED_MAKE_IN_CONTEXT(d, context, cuIpcOpenEventHandle, *handle);
}
