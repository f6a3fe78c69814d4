/* How a function of driver.h calls the driver: in a context, and with which mode of
 * stream capture. */
#pragma once

#include "driver.h"

typedef cdevice_v0_cuda_result result;
typedef cdevice_v0_cuda_table table;

/* Calls a function of the table; r receives its result. */
#define CALL(r, d, name, ...) \
  ((r)->call = cdevice_v0_cuda_call_##name, (r)->code = (d)->name ? (d)->name(__VA_ARGS__) : CDEVICE_V0_CUDA_MISSING)

/* Makes context current; *before is the context that leave restores. 0 is a context that is known
 * to be gone; the driver is not called, because the handle may be another context's by now. Setting
 * rather than pushing: setting may be repeated, and costs nothing on a thread where the primary
 * context is current already, as it is wherever the runtime API runs. */
static inline int enter(result* r, table d, uintptr_t context, uintptr_t* before) {
  if (!context) {
    r->call = cdevice_v0_cuda_call_cuCtxSetCurrent;
    return r->code = CDEVICE_V0_CUDA_GONE;
  }
  if (CALL(r, d, cuCtxGetCurrent, before)) return r->code;
  if (*before == context) return 0;
  return CALL(r, d, cuCtxSetCurrent, context);
}

/* Restores the previous context, and tries twice: a failure would leave the caller's thread
 * changed. It is not reported, because the call itself has succeeded, or has failed for a reason of
 * its own. */
static inline void leave(table d, uintptr_t context, uintptr_t before) {
  if (before != context && d->cuCtxSetCurrent(before)) d->cuCtxSetCurrent(before);
}

/* CU_STREAM_CAPTURE_MODE_RELAXED: the calling thread's potentially unsafe calls, which take effect
 * at once where a capture does not see them, are permitted. In the other modes they fail, and
 * invalidate the captures of this thread and, of other threads, those of mode global: PyTorch's,
 * say. That protects threads that might expect their calls to be captured. No call of this library
 * is meant for a capture. */
enum { relaxed = 2 };

/* Exchanges the capture mode of the thread for relaxed, and returns the one before. A
 * driver that cannot is asked all the same: its answer is the call's own. */
static inline int relax(table d) {
  int mode = relaxed;
  if (!d->cuThreadExchangeStreamCaptureMode || d->cuThreadExchangeStreamCaptureMode(&mode)) return relaxed;
  return mode;
}

/* Restores the mode, and like leave tries twice. */
static inline void restore(table d, int before) {
  if (before == relaxed) return;
  int mode = before;
  if (!d->cuThreadExchangeStreamCaptureMode(&mode)) return;
  mode = before;
  d->cuThreadExchangeStreamCaptureMode(&mode);
}

/* A function whose one call needs no context. */
#define WITHOUT_CONTEXT(r, ...) \
  result r = {0, 0, 0};         \
  __VA_ARGS__;                  \
  return r

/* One whose call answers with a number. */
#define ANSWER(type, d, name, ...) \
  type answer = 0;                 \
  WITHOUT_CONTEXT(r, if (!CALL(&r, d, name, &answer, __VA_ARGS__)) r.value = (uint64_t)answer)

/* A function whose one call runs in a context. */
#define IN_CONTEXT(d, context, r, ...)          \
  result r = {0, 0, 0};                         \
  uintptr_t before;                             \
  if (enter(&r, d, context, &before)) return r; \
  __VA_ARGS__;                                  \
  leave(d, context, before);                    \
  return r

/* One whose call is potentially unsafe while streams are captured. So is, on an H200 with CUDA 13.0, memory that
 * is allocated from a pool or freed to it in a stream that is not captured: in mode global, these calls and
 * cuMemPoolSetAttribute fail and invalidate the captures of other threads. In a stream that is captured they
 * become nodes of the graph in every mode. Records, waits, fills, copies, prefetches and host functions in other
 * streams, queries of addresses and of free memory were permitted there in mode global, and are made in the mode
 * of the thread. */
#define RELAXED_IN_CONTEXT(d, context, r, ...) \
  IN_CONTEXT(d, context, r, int mode = relax(d); __VA_ARGS__; restore(d, mode))

/* One whose call makes something: the handle or address goes to r.value. */
#define MAKE(r, d, name, ...) \
  if (!CALL(&r, d, name, &made, __VA_ARGS__)) r.value = made
#define MAKE_IN_CONTEXT(d, context, name, ...) \
  uintptr_t made = 0;                          \
  IN_CONTEXT(d, context, r, MAKE(r, d, name, __VA_ARGS__))
#define RELAXED_MAKE_IN_CONTEXT(d, context, name, ...) \
  uintptr_t made = 0;                                  \
  RELAXED_IN_CONTEXT(d, context, r, MAKE(r, d, name, __VA_ARGS__))
