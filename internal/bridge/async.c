#include "async.h"
#include "fork.h"
#include "local.h"
#include "result.h"

#include <stddef.h>

/* Go: what the callbacks do. Addresses are passed as words. */
extern int cdevice_v0_go_on_schema(uint64_t handle, uintptr_t producer, uintptr_t schema);
extern int cdevice_v0_go_on_next_task(uint64_t handle, uintptr_t task, uintptr_t metadata);
extern void cdevice_v0_go_on_error(uint64_t handle, int code, uintptr_t message, uintptr_t metadata);
extern int cdevice_v0_go_extract_data(uint64_t handle, uintptr_t out);
extern void cdevice_v0_go_release(uint64_t handle);

static uint64_t word(const void* private_data) { return (uint64_t)(uintptr_t)private_data; }

int cdevice_v0_handler_on_schema(struct ArrowAsyncDeviceStreamHandler* handler, struct ArrowSchema* schema) {
  if (cdevice_v0_forked()) return CDEVICE_FORKED;
  return cdevice_v0_go_on_schema(word(handler->private_data), (uintptr_t)handler->producer, (uintptr_t)schema);
}

int cdevice_v0_handler_on_next_task(struct ArrowAsyncDeviceStreamHandler* handler, struct ArrowAsyncTask* task,
                                    const char* metadata) {
  if (cdevice_v0_forked()) return CDEVICE_FORKED;
  return cdevice_v0_go_on_next_task(word(handler->private_data), (uintptr_t)task, (uintptr_t)metadata);
}

void cdevice_v0_handler_on_error(struct ArrowAsyncDeviceStreamHandler* handler, int code, const char* message,
                                 const char* metadata) {
  if (!cdevice_v0_forked())
    cdevice_v0_go_on_error(word(handler->private_data), code, (uintptr_t)message, (uintptr_t)metadata);
}

void cdevice_v0_handler_release(struct ArrowAsyncDeviceStreamHandler* handler) {
  if (handler->release == NULL) return;
  handler->release = NULL;
  if (!cdevice_v0_forked()) cdevice_v0_go_release(word(handler->private_data));
}

int cdevice_v0_task_extract_data(struct ArrowAsyncTask* task, struct ArrowDeviceArray* out) {
  int code = CDEVICE_FORKED;
  if (!cdevice_v0_forked()) code = cdevice_v0_go_extract_data(word(task->private_data), (uintptr_t)out);
  return cdevice_v0_result(code, out, sizeof *out);
}

int cdevice_v0_call_on_schema(uint64_t* handler, uint64_t* schema) {
  struct ArrowAsyncDeviceStreamHandler* h = (struct ArrowAsyncDeviceStreamHandler*)handler;
  return h->on_schema(h, (struct ArrowSchema*)schema);
}

int cdevice_v0_call_on_next_task(uint64_t* handler, uint64_t* task, const char* metadata) {
  struct ArrowAsyncDeviceStreamHandler* h = (struct ArrowAsyncDeviceStreamHandler*)handler;
  return h->on_next_task(h, (struct ArrowAsyncTask*)task, metadata);
}

void cdevice_v0_call_on_error(uint64_t* handler, int code, const char* message, const char* metadata) {
  struct ArrowAsyncDeviceStreamHandler* h = (struct ArrowAsyncDeviceStreamHandler*)handler;
  h->on_error(h, code, message, metadata);
}

void cdevice_v0_call_handler_release(uint64_t* handler) {
  struct ArrowAsyncDeviceStreamHandler* h = (struct ArrowAsyncDeviceStreamHandler*)handler;
  h->release(h);
}

int cdevice_v0_call_extract_data(uint64_t* task, uint64_t* out) {
  struct ArrowAsyncTask* t = (struct ArrowAsyncTask*)task;
  return t->extract_data(t, (struct ArrowDeviceArray*)out);
}

/* The calls of producers that this thread is in, the innermost first. */
struct call {
  uint64_t handle;
  struct call* outer;
};

CDEVICE_V0_LOCAL(struct call, calls)

void cdevice_v0_call_request(uintptr_t producer, int64_t n, uint64_t handle) {
  struct ArrowAsyncProducer* p = (struct ArrowAsyncProducer*)producer;
  struct call call = {handle, calls()};
  set_calls(&call);
  p->request(p, n);
  set_calls(call.outer);
}

void cdevice_v0_call_cancel(uintptr_t producer, uint64_t handle) {
  struct ArrowAsyncProducer* p = (struct ArrowAsyncProducer*)producer;
  struct call call = {handle, calls()};
  set_calls(&call);
  p->cancel(p);
  set_calls(call.outer);
}

int cdevice_v0_calling(uint64_t handle) {
  for (const struct call* c = calls(); c != NULL; c = c->outer) {
    if (c->handle == handle) return 1;
  }
  return 0;
}
