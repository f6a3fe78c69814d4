/* Primary contexts. */
#define GROUP "primary contexts"
#include "rules.h"

static bool active(int device) {
  unsigned flags;
  int is = -1;
  OK(cuDevicePrimaryCtxGetState(device, &flags, &is));
  return is != 0;
}

static CUcontext retain(void) {
  CUcontext context = NULL;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  return context;
}

RULE(retaining_makes_nothing_current, MANUAL, "cuDevicePrimaryCtxRetain does not make the context current.",
     .bare = true) {
  CUcontext context = retain();
  OK(cuCtxGetCurrent(&context));
  CHECK(context == NULL);
}

RULE(a_primary_context_is_one_and_counted, MANUAL,
     "Two retains give one context, which is active until it was released twice.", .bare = true) {
  OK(cuInit(0));
  CHECK(!active(0));
  CUcontext first = retain(), second = retain();
  CHECK(first == second);
  CHECK(active(0));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  CHECK(active(0));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  CHECK(!active(0));
}

RULE(devices_have_different_primary_contexts, MANUAL, "The primary contexts of two devices differ.", .needs = TWO) {
  CHECK(use(0) != use(1));
}

RULE(a_primary_context_is_not_released_more_often_than_retained, MANUAL,
     "cuDevicePrimaryCtxRelease without a retain is INVALID_CONTEXT.", .bare = true) {
  OK(cuInit(0));
  IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  retain();
  OK(cuDevicePrimaryCtxRelease_v2(0));
  IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(unknown_devices_have_no_primary_context, MANUAL, "Retain and release of an unknown device are INVALID_DEVICE.",
     .bare = true) {
  CUcontext context;
  OK(cuInit(0));
  IS(cuDevicePrimaryCtxRetain(&context, 77), CUDA_ERROR_INVALID_DEVICE);
  IS(cuDevicePrimaryCtxRelease_v2(77), CUDA_ERROR_INVALID_DEVICE);
}

RULE(a_released_primary_context_stays_on_the_stack, MANUAL, "The last release does not pop the context from the stack.",
     .bare = true) {
  CUcontext context = retain(), now = NULL;
  OK(cuCtxPushCurrent_v2(context));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  IS(cuCtxGetCurrent(&now), CUDA_SUCCESS);
  CHECK(now == context);
}

RULE(a_released_primary_context_is_useless, READING,
     "Allocation in a primary context after its last release is CONTEXT_IS_DESTROYED or INVALID_CONTEXT.",
     .bare = true) {
  CUdeviceptr memory;
  OK(cuCtxPushCurrent_v2(retain()));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  IS_ONE_OF(cuMemAlloc_v2(&memory, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT);
}

RULE(a_released_primary_context_cannot_be_made_current, READING,
     "cuCtxSetCurrent of a primary context after its last release is INVALID_CONTEXT.", .bare = true) {
  CUcontext context = retain();
  OK(cuDevicePrimaryCtxRelease_v2(0));
  IS(cuCtxSetCurrent(context), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(a_primary_context_can_be_retained_again, MANUAL, "After the last release, the next retain makes the context anew.",
     .bare = true) {
  for (int i = 0; i < 3; i++) {
    CUdeviceptr memory;
    OK(cuCtxSetCurrent(retain()));
    IS(cuMemAlloc_v2(&memory, 64), CUDA_SUCCESS);
    IS(cuMemFree_v2(memory), CUDA_SUCCESS);
    OK(cuDevicePrimaryCtxRelease_v2(0));
  }
}

RULE(the_last_release_frees_the_memory, MANUAL, "Memory of a primary context is gone after its last release.",
     .bare = true) {
  OK(cuCtxSetCurrent(retain()));
  CUdeviceptr memory = new_memory(4096);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuCtxSetCurrent(retain()));
  IS(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
}

RULE(the_last_release_waits_for_work, READING, "The last release of a primary context waits for its work.",
     .bare = true) {
  OK(cuCtxSetCurrent(retain()));
  close_gate(new_stream());
  WAITS(cuDevicePrimaryCtxRelease_v2(0));
}

RULE(resetting_frees_the_memory, MANUAL, "cuDevicePrimaryCtxReset destroys what is in the context.", .bare = true) {
  unsigned char byte;
  OK(cuCtxSetCurrent(retain()));
  CUdeviceptr memory = new_memory(4096);
  IS(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  REFUSED(cuMemcpyDtoH_v2(&byte, memory, 1));
}

/* What this library takes for the answer of a context that another library has reset. */
static void check_gone(const char* call, CUresult got) {
  if (got != CUDA_ERROR_INVALID_CONTEXT && got != CUDA_ERROR_CONTEXT_IS_DESTROYED && got != CUDA_ERROR_INVALID_HANDLE)
    differs("%s is %s", call, error_name(got));
}

RULE(a_stream_of_a_context_that_was_reset_is_refused, READING,
     "The query of a stream of a reset context is INVALID_CONTEXT, CONTEXT_IS_DESTROYED or INVALID_HANDLE.",
     .bare = true) {
  OK(cuCtxSetCurrent(retain()));
  CUstream s = new_stream();
  OK(cuDevicePrimaryCtxReset_v2(0));
  check_gone("cuStreamQuery", cuStreamQuery(s));
}

RULE(an_event_of_a_context_that_was_reset_is_refused, READING,
     "The query of an event of a reset context is INVALID_CONTEXT, CONTEXT_IS_DESTROYED or INVALID_HANDLE.",
     .bare = true) {
  OK(cuCtxSetCurrent(retain()));
  CUevent e = new_event();
  OK(cuDevicePrimaryCtxReset_v2(0));
  check_gone("cuEventQuery", cuEventQuery(e));
}

RULE(a_context_that_was_reset_does_no_work, READING,
     "Allocation in a reset context is INVALID_CONTEXT or CONTEXT_IS_DESTROYED, until it is retained again.",
     .bare = true) {
  CUdeviceptr m;
  OK(cuCtxSetCurrent(retain()));
  OK(cuDevicePrimaryCtxReset_v2(0));
  check_gone("cuMemAlloc", cuMemAlloc_v2(&m, 64));
  OK(cuCtxSetCurrent(retain()));
  IS(cuMemAlloc_v2(&m, 64), CUDA_SUCCESS);
}

RULE(pinned_memory_of_a_reset_context_is_gone, READING, "Page-locked memory is freed by the reset of its context.",
     .bare = true) {
  OK(cuCtxSetCurrent(retain()));
  unsigned char* p = new_pinned(8 << 20);
  OK(cuDevicePrimaryCtxReset_v2(0));
  OK(cuCtxSetCurrent(retain()));
  IS(cuMemFreeHost(p), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_reset_waits_for_work, READING, "cuDevicePrimaryCtxReset waits for pending work of the context.", .bare = true) {
  OK(cuCtxSetCurrent(retain()));
  close_gate(new_stream());
  WAITS(cuDevicePrimaryCtxReset_v2(0));
}

RULE(references_survive_a_reset, READING, "After a reset, a primary context still needs as many releases as retains.",
     .bare = true) {
  retain();
  OK(cuDevicePrimaryCtxReset_v2(0));
  IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(flags_of_a_primary_context_are_kept, MANUAL,
     "cuDevicePrimaryCtxSetFlags sets what GetState answers; unknown flags are INVALID_VALUE.", .bare = true) {
  unsigned flags = 0;
  int is;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_BLOCKING_SYNC));
  OK(cuDevicePrimaryCtxGetState(0, &flags, &is));
  SAME(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC);
  IS(cuDevicePrimaryCtxSetFlags_v2(0, 3), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_primary_context_keeps_its_handle, SEEN,
     "The handle of a primary context is the same after the last release and the next retain.", .bare = true,
     .options = "primary=stable") {
  CUcontext first = retain();
  OK(cuCtxSetCurrent(first));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  CHECK(retain() == first);
}

RULE(a_primary_context_is_current_again_where_it_was, READING,
     "A thread that had a primary context current has it current again after the last release and the next retain.",
     .bare = true, .options = "primary=stable") {
  CUcontext context = retain(), now = NULL;
  OK(cuCtxSetCurrent(context));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  retain();
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
  OK(cuCtxGetCurrent(&now));
  CHECK(now == context);
  CUdeviceptr m = new_memory(64);
  IS(cuMemFree_v2(m), CUDA_SUCCESS);
}

RULE(a_primary_context_has_a_new_id_each_time, READING,
     "cuCtxGetId of a primary context differs after the last release and the next retain.", .bare = true,
     .options = "primary=stable") {
  CUcontext context = retain();
  unsigned long long first = 0, second = 0;
  OK(cuCtxGetId(context, &first));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  context = retain();
  OK(cuCtxGetId(context, &second));
  CHECK(first != second);
}

RULE(a_primary_context_that_was_reset_is_destroyed, READING,
     "Calls with a primary context as the current one are CONTEXT_IS_DESTROYED after a reset, until it is retained.",
     .bare = true, .options = "primary=stable") {
  CUcontext context = retain();
  OK(cuCtxSetCurrent(context));
  OK(cuDevicePrimaryCtxReset_v2(0));
  unsigned long long id = 0;
  IS(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  IS(cuCtxGetId(context, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(retain() == context);
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

RULE(a_primary_context_has_new_default_streams_each_time, READING,
     "The default streams work again after the last release of a primary context and the next retain.", .bare = true,
     .options = "primary=stable") {
  CUcontext context = retain();
  for (int i = 0; i < 2; i++) {
    OK(cuCtxSetCurrent(context));
    CUdeviceptr m = new_memory(64);
    OK(cuMemsetD8Async(m, 7, 64, CU_STREAM_PER_THREAD));
    IS(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    OK(cuMemsetD8Async(m, 7, 64, NULL));
    IS(cuStreamSynchronize(NULL), CUDA_SUCCESS);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    retain();
  }
}
