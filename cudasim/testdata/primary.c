/* A primary context whose handle stays the same: the option primary=stable. */
#include "rules.h"

static CUcontext retain(void) {
  CUcontext context = NULL;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  return context;
}

RULE(a_primary_context_gets_a_new_handle_by_default, "") {
  CUcontext first = retain();
  OK(cuDevicePrimaryCtxRelease_v2(0));
  CUcontext second = retain();
  CHECK(first != second);
  IS(cuCtxSetCurrent(first), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuDevicePrimaryCtxRelease_v2(0));
}

RULE(a_stable_primary_context_keeps_its_handle, "primary=stable") {
  CUcontext first = retain();
  for (int i = 0; i < 3; i++) {
    OK(cuCtxSetCurrent(first));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    IS(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    IS(cuCtxSetCurrent(first), CUDA_ERROR_INVALID_CONTEXT);
    CHECK(retain() == first);
  }
  OK(cuDevicePrimaryCtxRelease_v2(0));
}

RULE(a_stable_primary_context_is_current_again_where_it_was, "primary=stable") {
  CUcontext context = retain(), current = NULL;
  OK(cuCtxSetCurrent(context));
  CUdeviceptr lost = new_memory(64);
  OK(cuDevicePrimaryCtxReset_v2(0)); /* references survive, objects of the context do not */
  OK(cuDevicePrimaryCtxRelease_v2(0));
  retain();
  OK(cuCtxSynchronize());
  OK(cuCtxGetCurrent(&current));
  CHECK(current == context);
  IS(cuMemFree_v2(lost), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr m = new_memory(64);
  OK(cuMemsetD8_v2(m, 7, 64));
  CHECK(is_filled(m, 7, 64));
  OK(cuMemFree_v2(m));
  OK(cuDevicePrimaryCtxRelease_v2(0));
}

RULE(a_stable_primary_context_has_a_new_id_each_time, "primary=stable") {
  CUcontext context = retain();
  unsigned long long first = 0, second = 0;
  OK(cuCtxSetCurrent(context));
  OK(cuCtxGetId(context, &first));
  OK(cuDevicePrimaryCtxReset_v2(0));
  IS(cuCtxGetId(context, &second), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(retain() == context);
  OK(cuCtxGetId(context, &second));
  CHECK(first != second);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  OK(cuDevicePrimaryCtxRelease_v2(0));
}

RULE(a_stable_primary_context_has_new_default_streams, "primary=stable") {
  CUcontext context = retain();
  CUstream per_thread = (CUstream)2;
  for (int i = 0; i < 2; i++) {
    OK(cuCtxSetCurrent(context));
    CUdeviceptr m = new_memory(64);
    OK(cuMemsetD8Async(m, 7, 64, per_thread));
    OK(cuStreamSynchronize(per_thread));
    OK(cuMemsetD8Async(m, 7, 64, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuDevicePrimaryCtxRelease_v2(0)); /* takes the memory along */
    retain();
  }
  OK(cuDevicePrimaryCtxRelease_v2(0));
}
