/* Captures of streams: whether there are any, and ones for tests. */
#include "call.h"

enum { legacy_stream = 1, capture_implicit = 906 };

/* To ask is no work: it invalidates no capture, and the thread's mode does not matter.
 * Of the legacy stream the answer is an error while a blocking stream captures. */
static int captures(result* r, table d, uintptr_t stream) {
  int status = 0;
  *r = (result){0, 0, 0};
  if (CALL(r, d, cuStreamIsCapturing, stream, &status) == capture_implicit) return 1;
  return !r->code && status;
}

static result ask(table d, const uintptr_t* streams, size_t count) {
  result r, first = {0, 0, 0};
  for (size_t i = 0; i <= count; i++) {
    if (captures(&r, d, i ? streams[i - 1] : legacy_stream)) return (result){0, 0, 1};
    if (!first.code) first = r;
  }
  return first;
}

result cdevice_v0_cuda_capturing(table d, uintptr_t context, const uintptr_t* streams, size_t count) {
  IN_CONTEXT(d, context, r, if (d->cuStreamIsCapturing) r = ask(d, streams, count));
}

/* Next to each other, because a capture may begin in between. */
static result synchronize_uncaptured(table d, const uintptr_t* streams, size_t count, int32_t* asked) {
  enum { first_code = 900, last_code = 908 };
  result r = {0, 0, 0};
  if (d->cuStreamIsCapturing) r = ask(d, streams, count);
  /* A thread that reads it may end the streams: the queries happen before that. */
  __atomic_store_n(asked, 1, __ATOMIC_RELEASE);
  if (r.value || (first_code <= r.code && r.code <= last_code)) return (result){0, 0, 1};
  r.call = cdevice_v0_cuda_call_cuCtxSynchronize;
  r.code = d->cuCtxSynchronize();
  return r;
}

result cdevice_v0_cuda_context_synchronize_uncaptured(table d, uintptr_t context, const uintptr_t* streams,
                                                      size_t count, int32_t* asked) {
  RELAXED_IN_CONTEXT(d, context, r, r = synchronize_uncaptured(d, streams, count, asked));
}

result cdevice_v0_cuda_capture_begin(table d, uintptr_t context, uintptr_t stream, int mode) {
  IN_CONTEXT(d, context, r, CALL(&r, d, cuStreamBeginCapture, stream, mode));
}

result cdevice_v0_cuda_capture_end(table d, uintptr_t context, uintptr_t stream) {
  uintptr_t graph = 0;
  IN_CONTEXT(d, context, r, if (!CALL(&r, d, cuStreamEndCapture, stream, &graph)) CALL(&r, d, cuGraphDestroy, graph));
}

result cdevice_v0_cuda_capture_mode(table d) {
  result r = {0, 0, 0};
  int mode = relaxed, back;
  if (CALL(&r, d, cuThreadExchangeStreamCaptureMode, &mode)) return r;
  r.value = (uint64_t)mode;
  back = mode;
  CALL(&r, d, cuThreadExchangeStreamCaptureMode, &back);
  return r;
}

result cdevice_v0_cuda_stream_blocking(table d, uintptr_t context) {
  RELAXED_MAKE_IN_CONTEXT(d, context, cuStreamCreateWithPriority, 0, 0);
}

result cdevice_v0_cuda_context_reset(table d, int device) {
  result r = {0, 0, 0};
  CALL(&r, d, cuDevicePrimaryCtxReset, device);
  return r;
}
