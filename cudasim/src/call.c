/* Counting calls, and making them fail. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static bool fails(const struct call *call) {
  if (!sim.fault.countdown) return false;
  if (*sim.fault.function && strcmp(sim.fault.function, call->name)) return false;
  if (sim.fault.countdown > 1) {
    sim.fault.countdown--;
    return false;
  }
  if (!--sim.fault.left) sim.fault.countdown = 0;
  sim.fault.met = call->name;
  return true;
}

CUresult call_begin(struct call *call, bool per_thread, bool early, void *from) {
  struct caller *place = caller_seen(from);
  sim_lock();
  sim.inside++;
  if (sim.ended) return CUDA_ERROR_DEINITIALIZED;
  struct thread *t = self();
  ledger_open();
  if (!call->listed) {
    call->listed = true;
    call->next = sim.calls;
    sim.calls = call;
  }
  call->count++;
  t->call = call->name;
  t->place = place;
  t->per_thread = per_thread;
  if (fails(call)) return sim.fault.result;
  if (t->in_host_function) {
    violation("%s called by a host function", call->name);
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (!early && (!sim.initialised || sim.forked)) return CUDA_ERROR_NOT_INITIALIZED;
  return sim.captures ? capture_forbids(call->name) : CUDA_SUCCESS;
}

CUresult call_end(CUresult result) {
  if (result && result != CUDA_ERROR_NOT_READY) sim.failed_calls++;
  sim.inside--;
  call_left();
  sim_unlock();
  return result;
}

void cudasim_fail(const char *function, uint64_t k, int result) { cudasim_fail_times(function, k, 1, result); }

void cudasim_fail_times(const char *function, uint64_t k, uint64_t times, int result) {
  sim_lock();
  memset(&sim.fault, 0, sizeof sim.fault);
  if (function) strncpy(sim.fault.function, function, sizeof sim.fault.function - 1);
  sim.fault.countdown = times ? k : 0;
  sim.fault.left = times;
  sim.fault.result = (CUresult)result;
  sim_unlock();
}

int cudasim_failed(const char **function) {
  sim_lock();
  const char *met = sim.fault.met;
  sim_unlock();
  if (function) *function = met;
  return met != NULL;
}

uint64_t cudasim_calls(const char *function) {
  uint64_t count = 0;
  sim_lock();
  for (const struct call *c = sim.calls; c; c = c->next)
    if (!function || !strcmp(c->name, function)) count += c->count;
  sim_unlock();
  return count;
}

void cudasim_reset_counters(void) {
  sim_lock();
  for (struct call *c = sim.calls; c; c = c->next) c->count = 0;
  sim.failed_calls = sim.synchronisations = sim.staged_bytes = 0;
  memset(sim.bytes, 0, sizeof sim.bytes);
  for (int d = 0; d < MAX_DEVICES; d++) sim.devices[d].peak = sim.devices[d].bytes;
  sim_unlock();
}
