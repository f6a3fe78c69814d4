/* Calls that are not permitted during a capture. */
#include "capture.h"

RULE(a_capturing_stream_is_not_waited_for, "") {
  use(0);
  CUresult (*const asks[])(CUstream) = {cuStreamQuery, cuStreamSynchronize};
  for (int i = 0; i < 2; i++) {
    CUstream s = capturing(RELAXED);
    IS(asks[i](s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_invalidated(s);
    OK(cuStreamDestroy_v2(s));
  }
}

RULE(a_context_with_a_capture_is_not_waited_for, "devices=2") {
  CUcontext first = use(0);
  CUstream s = capturing(RELAXED);
  use(1);
  OK(cuCtxSynchronize());
  SAME(status(s), ACTIVE);
  OK(cuCtxSetCurrent(first));
  IS(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_invalidated(s);
  OK(cuCtxSynchronize());
  OK(cuStreamDestroy_v2(s));
}

/* While a blocking stream captures, the legacy stream would depend on it. */
RULE(a_blocking_capture_makes_the_legacy_stream_unusable, "") {
  use(0);
  CUdeviceptr m = new_memory(64);
  CUevent e = new_event();
  unsigned char bytes[64];
  int is = 0;
  for (int i = 0; i < 8; i++) {
    CUresult r = CUDA_SUCCESS;
    CUstream s = new_blocking_stream();
    OK(cuStreamBeginCapture_v2(s, i % 3));
    IS(cuStreamIsCapturing(NULL, &is), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    SAME(status(s), ACTIVE); /* asking does no harm */
    if (i == 0) r = cuMemsetD8Async(m, 1, 64, NULL);
    if (i == 1) r = cuMemcpyDtoH_v2(bytes, m, 64);
    if (i == 2) r = cuEventRecord(e, NULL);
    if (i == 3) r = cuStreamSynchronize(NULL);
    if (i == 4) r = cuStreamQuery(CU_STREAM_LEGACY);
    if (i == 5) r = cuMemsetD8_v2(m, 1, 64);
    if (i == 6) r = cuMemcpyHtoDAsync_v2(m, bytes, 64, NULL);
    if (i == 7) r = cuMemcpyHtoD_v2(m, bytes, 64);
    SAME(r, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    IS(cuMemsetD8Async(m, 1, 64, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT); /* until it is ended */
    end_invalidated(s);
    OK(cuMemsetD8Async(m, 1, 64, NULL));
    OK(cuStreamDestroy_v2(s));
  }
  OK(cuEventDestroy_v2(e));
  OK(cuMemFree_v2(m));
}

RULE(a_capture_of_a_non_blocking_stream_leaves_the_legacy_stream_alone, "") {
  use(0);
  CUstream s = capturing(GLOBAL);
  CUdeviceptr m = 0;
  CUevent e = new_event();
  int mode = mode_of_thread(RELAXED);
  m = new_memory(64);
  SAME(status(NULL), NONE);
  OK(cuMemsetD8_v2(m, 1, 64));
  OK(cuEventRecord(e, NULL));
  OK(cuEventSynchronize(e));
  CHECK(is_filled(m, 1, 64));
  mode_of_thread(mode);
  OK(cuGraphDestroy(end(s)));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemFree_v2(m));
}

/* Calls that a capture does not see. */
struct unsafe {
  CUstream other;
  CUevent event;
  CUdeviceptr memory;
  void *pinned;
  char *pageable;
};

enum { UNSAFE_CALLS = 13 };

static CUresult call_unsafe(struct unsafe *u, int i) {
  static char bytes[4096];
  switch (i) {
    case 0: return cuMemAlloc_v2(&u->memory, 64);
    case 1: return cuMemcpyHtoD_v2(u->memory, bytes, 64);
    case 2: return cuMemcpyDtoH_v2(bytes, u->memory, 64);
    case 3: return cuMemsetD8_v2(u->memory, 1, 64);
    case 4: return cuMemFree_v2(u->memory);
    case 5: return cuMemHostAlloc(&u->pinned, 64, 0);
    case 6: return cuMemFreeHost(u->pinned);
    case 7: return cuMemHostRegister_v2(bytes, sizeof bytes, 0);
    case 8: return cuMemHostUnregister(bytes);
    case 9: return cuEventQuery(u->event);
    case 10: return cuEventSynchronize(u->event);
    case 11: return cuStreamQuery(u->other);
    default: return cuStreamSynchronize(u->other);
  }
}

/* Each from a thread in a mode, during a capture of a mode by this or another thread. */
struct attempt {
  CUcontext context;
  struct unsafe *unsafe;
  int thread_mode, call;
  CUresult result;
};

static void try(void *data) {
  struct attempt *a = data;
  OK(cuCtxSetCurrent(a->context));
  int mode = mode_of_thread(a->thread_mode);
  a->result = call_unsafe(a->unsafe, a->call);
  mode_of_thread(mode);
}

static bool forbidden(int capture_mode, int thread_mode, bool same_thread) {
  if (thread_mode == RELAXED || capture_mode == RELAXED) return false;
  return same_thread || (capture_mode == GLOBAL && thread_mode == GLOBAL);
}

static void check_unsafe(bool same_thread) {
  CUcontext context = use(0);
  struct unsafe u = {.other = new_stream(), .event = new_event()};
  OK(cuEventRecord(u.event, u.other));
  OK(cuEventSynchronize(u.event));
  for (int modes = 0; modes < 9; modes++)
    for (int i = 0; i < UNSAFE_CALLS; i++) {
      struct attempt a = {context, &u, modes / 3, i, -1};
      CUstream s = capturing(modes % 3);
      same_thread ? try(&a) : on_thread(try, &a);
      bool refused = forbidden(modes % 3, modes / 3, same_thread);
      if (a.result != (refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS))
        fail(__FILE__, __LINE__, "call %d of a thread in mode %d, in a capture of mode %d: %d", i, modes / 3, modes % 3,
             a.result);
      if (refused) {
        end_invalidated(s);
        OK(call_unsafe(&u, i)); /* the next calls need the result of this one */
      } else {
        OK(cuGraphDestroy(end(s)));
      }
      OK(cuStreamDestroy_v2(s));
    }
  OK(cuEventDestroy_v2(u.event));
  OK(cuStreamDestroy_v2(u.other));
}

RULE(unsafe_calls_of_the_capturing_thread_depend_on_modes, "") { check_unsafe(true); }
RULE(unsafe_calls_of_other_threads_depend_on_modes, "") { check_unsafe(false); }

RULE(what_a_capture_does_not_mind_is_permitted, "") {
  use(0);
  CUstream s = capturing(GLOBAL), other = new_stream();
  CUevent e = new_event();
  size_t available, total;
  OK(cuMemGetInfo_v2(&available, &total));
  OK(cuEventRecord(e, other));
  OK(cuStreamWaitEvent(other, e, 0));
  CUdeviceptr m;
  OK(cuMemAllocAsync(&m, 64, other));
  OK(cuMemsetD8Async(m, 1, 64, other));
  OK(cuMemFreeAsync(m, other));
  SAME(status(s), ACTIVE);
  OK(cuGraphDestroy(end(s)));
  OK(cuEventDestroy_v2(e));
  OK(cuStreamDestroy_v2(s));
  OK(cuStreamDestroy_v2(other));
}

RULE(the_mode_of_a_thread_is_exchanged, "") {
  int mode = RELAXED;
  use(0);
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  SAME(mode, GLOBAL);
  mode = 3;
  IS(cuThreadExchangeStreamCaptureMode(&mode), CUDA_ERROR_INVALID_VALUE);
  IS(cuThreadExchangeStreamCaptureMode(NULL), CUDA_ERROR_INVALID_VALUE);
  SAME(mode_of_thread(LOCAL), RELAXED);
  SAME(mode_of_thread(GLOBAL), LOCAL);
}

struct ending {
  CUstream stream;
  CUgraph graph;
  CUresult result;
};

static void end_elsewhere(void *data) {
  struct ending *e = data;
  e->result = cuStreamEndCapture(e->stream, &e->graph);
}

RULE(a_capture_is_ended_by_the_thread_that_began_it, "") {
  use(0);
  struct ending e = {0};
  for (int mode = GLOBAL; mode <= LOCAL; mode++) {
    e.stream = capturing(mode);
    on_thread(end_elsewhere, &e);
    SAME(e.result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    end_invalidated(e.stream);
    OK(cuStreamDestroy_v2(e.stream));
  }
  e.stream = capturing(RELAXED);
  on_thread(end_elsewhere, &e);
  SAME(e.result, CUDA_SUCCESS);
  OK(cuGraphDestroy(e.graph));
  OK(cuStreamDestroy_v2(e.stream));
}

RULE(stream_ordered_memory_is_not_captured, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m, n;
  OK(cuMemAllocAsync(&m, 64, s));
  OK(cuStreamBeginCapture_v2(s, GLOBAL));
  IS(cuMemAllocAsync(&n, 64, s), CUDA_ERROR_NOT_SUPPORTED);
  IS(cuMemFreeAsync(m, s), CUDA_ERROR_NOT_SUPPORTED);
  SAME(status(s), ACTIVE);
  OK(cuGraphDestroy(end(s)));
  OK(cuMemFreeAsync(m, s));
  OK(cuStreamDestroy_v2(s));
}
