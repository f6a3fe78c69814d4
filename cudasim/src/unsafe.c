/* Calls that are not permitted during a capture. Each that is refused invalidates the
 * captures that it conflicts with.
 *
 * The manual says that some calls always conflict: to query or wait for a stream or an
 * event that is captured, or for a context with such a stream in it, and to use the
 * legacy stream while a blocking stream captures. Others are "potentially unsafe",
 * because they work at once and a capture does not see them. Whether they are permitted
 * depends on the mode of the thread and of the captures. */
#include "sim.h"

#include <string.h>

/* Of the thread that calls, or global ones of others. Reading: an invalidated capture
 * is no longer under way, and refuses nothing. */
static bool conflicts(const struct capture *c, const struct thread *t) {
  if (c->invalid || t->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (t->id == c->thread) return c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && t->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static CUresult potentially_unsafe(void) {
  CUresult r = CUDA_SUCCESS;
  for (struct capture *c = sim.captures; c; c = c->next) {
    if (!conflicts(c, self())) continue;
    capture_invalidate(c);
    r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return r;
}

/* As seen on drivers, but for IPC and, of pools, all but cuMemPoolSetAttribute, which are a reading. Synchronous
 * copies and fills are permitted; reading: unless it is their default stream that captures. */
static const struct {
  const char *name;
  bool in_default_stream;
} unsafe[] = {
    {"cuMemAlloc", false},
    {"cuMemFree", false},
    {"cuMemAllocManaged", false},
    {"cuMemAllocHost", false},
    {"cuMemHostAlloc", false},
    {"cuMemFreeHost", false},
    {"cuMemHostRegister", false},
    {"cuMemHostUnregister", false},
    {"cuIpcOpenMemHandle", false},
    {"cuIpcCloseMemHandle", false},
    {"cuMemPoolCreate", false},
    {"cuMemPoolDestroy", false},
    {"cuMemPoolTrimTo", false},
    {"cuMemPoolSetAccess", false},
    {"cuMemPoolSetAttribute", false},
    {"cuMemcpy", true},
    {"cuMemcpyHtoD", true},
    {"cuMemcpyDtoH", true},
    {"cuMemcpyDtoD", true},
    {"cuMemcpyPeer", true},
    {"cuMemsetD8", true},
    {"cuMemsetD16", true},
    {"cuMemsetD32", true},
};

static CUresult captured(struct stream *s) {
  capture_invalidate(s->capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static CUresult default_stream(void) {
  struct stream *s;
  return !stream_find_current(0, &s) && s->capture ? captured(s) : CUDA_SUCCESS;
}

/* Called before every call of the driver while there is a capture. */
CUresult capture_forbids(const char *call) {
  for (size_t i = 0; i < sizeof unsafe / sizeof *unsafe; i++)
    if (!strcmp(unsafe[i].name, call)) return unsafe[i].in_default_stream ? default_stream() : potentially_unsafe();
  return CUDA_SUCCESS;
}

/* Reading: to query or wait for a stream that is not captured is as unsafe as for an event. */
CUresult capture_forbids_stream(struct stream *s) {
  if (!sim.captures) return CUDA_SUCCESS;
  if (s->capture) return captured(s);
  CUresult r = s->role == LEGACY ? capture_implicit(s->context) : CUDA_SUCCESS;
  return r ? r : potentially_unsafe();
}

/* Drivers were seen to take an event of a capture that has ended for none at all. */
CUresult capture_forbids_captured(const struct event *e) {
  if (!e->capture) return CUDA_SUCCESS;
  return capture_find(e->capture) ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE;
}

CUresult capture_forbids_event(const struct event *e) {
  CUresult r = capture_forbids_captured(e);
  if (r == CUDA_ERROR_CAPTURED_EVENT) capture_invalidate(capture_find(e->capture));
  return r ? r : potentially_unsafe();
}

/* In every mode, and from every thread. */
CUresult capture_forbids_context(struct context *context) {
  CUresult r = CUDA_SUCCESS;
  for (const struct stream *s = context->streams; s; s = s->next) {
    if (!s->capture) continue;
    capture_invalidate(s->capture);
    r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return r;
}

/* What the simulator's graphs lack. As that is its own fault, the capture stays as it is. */
static CUresult no_node(const struct stream *s) {
  if (!s->capture) return CUDA_SUCCESS;
  return s->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_NOT_SUPPORTED;
}

/* In a capture, a driver makes nodes of them, with an address that only the graph may use; elsewhere, drivers
 * were seen to take them for unsafe. */
CUresult capture_forbids_pool(struct stream *s) { return s->capture ? no_node(s) : potentially_unsafe(); }

/* In a capture, it becomes a child graph on a driver. */
CUresult capture_forbids_launch(struct stream *s) {
  CUresult r = s->role == LEGACY && sim.captures ? capture_implicit(s->context) : CUDA_SUCCESS;
  return r ? r : no_node(s);
}
