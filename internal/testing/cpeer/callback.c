#include "callback.h"

#include <stddef.h>

#include "cpeer.h"

void cpeer_call_back(uintptr_t function) { cpeer_go_call(function); }

void cpeer_call_and_drain(uintptr_t function, struct ArrowArrayStream* stream, struct cpeer_drained* out) {
  cpeer_go_call(function);
  cpeer_stream_drain_here(stream, out);
}

struct call {
  uintptr_t function;
  struct ArrowArrayStream* stream;
  struct cpeer_drained* out;
};

static void* run(void* p) {
  struct call* call = p;
  cpeer_call_and_drain(call->function, call->stream, call->out);
  return NULL;
}

int cpeer_call_and_drain_on_thread(uintptr_t function, struct ArrowArrayStream* stream, struct cpeer_drained* out) {
  struct call call = {function, stream, out};
  return cpeer_on_thread(run, &call);
}
