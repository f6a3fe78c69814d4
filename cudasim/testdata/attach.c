/* Counting the users of a context, as programs of before primary contexts do. */
#include "rules.h"

static CUcontext current(void) {
  CUcontext context = NULL;
  OK(cuCtxGetCurrent(&context));
  return context;
}

RULE(detaching_a_created_context_destroys_it, "") {
  CUcontext primary = use(0), created;
  OK(cuCtxCreate_v2(&created, 0, 0));
  OK(cuCtxDetach(created));
  CHECK(current() == primary); /* it is popped, as when it is destroyed */
  IS(cuCtxPushCurrent_v2(created), CUDA_ERROR_INVALID_CONTEXT);
  SAME(reported("contexts", 0), 0);
}

RULE(a_context_is_destroyed_by_the_last_detach, "") {
  CUcontext primary = use(0), created, attached = NULL;
  OK(cuCtxCreate_v2(&created, 0, 0));
  OK(cuCtxAttach(&attached, 0));
  CHECK(attached == created);
  OK(cuCtxDetach(created));
  CHECK(current() == created);
  OK(cuCtxSynchronize());
  OK(cuCtxDetach(attached));
  CHECK(current() == primary);
}

RULE(only_the_current_context_is_detached, "") {
  CUcontext primary = use(0), created, popped;
  OK(cuCtxCreate_v2(&created, 0, 0));
  OK(cuCtxPopCurrent_v2(&popped));
  IS(cuCtxDetach(created), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxDetach(NULL), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxDetach(primary), CUDA_ERROR_INVALID_CONTEXT); /* never attached */
  OK(cuCtxDestroy_v2(created));
  OK(cuCtxSetCurrent(NULL));
  IS(cuCtxAttach(&created, 0), CUDA_ERROR_INVALID_CONTEXT);
  IS(cuCtxDetach(primary), CUDA_ERROR_INVALID_CONTEXT);
}

RULE(detaching_does_not_destroy_a_primary_context, "") {
  CUcontext primary = use(0), attached = NULL;
  OK(cuCtxAttach(&attached, 0));
  CHECK(attached == primary);
  OK(cuCtxDetach(attached));
  OK(cuCtxSynchronize());
  CHECK(current() == primary);
}

RULE(attaching_takes_no_flags, "") {
  CUcontext context;
  use(0);
  IS(cuCtxAttach(&context, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuCtxAttach(NULL, 0), CUDA_ERROR_INVALID_VALUE);
}
