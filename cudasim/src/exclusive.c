/* Devices without concurrent managed access: the host must not touch managed memory while its
 * device works, even if the work uses other memory. Work is pending until the host has waited for
 * it: the ordering decides, as in order.c, and not time. */
#include "sim.h"

static bool is_work(const struct op *op) { return op->kind == OP_COPY || op->kind == OP_SET; }

void exclusive_ordered(struct stream *s, const struct op *op) {
  if (!is_work(op)) return;
  s->worked = s->epoch;
  s->worked_by = op->call;
}

/* Work of a destroyed stream still counts. */
void exclusive_stream_end(struct stream *s) {
  if (!s->worked) return;
  clock_set(&s->context->retired_work, s->slot, s->worked);
  s->context->retired_by = s->worked_by;
}

/* The call of work that the host has not waited for, or NULL. */
static const char *pending_in(const struct stream *s) {
  for (const struct op *op = s->first; op; op = op->next)
    if (is_work(op)) return op->call;
  return s->worked > clock_at(host_of_call()->clock, s->slot) ? s->worked_by : NULL;
}

static const char *pending_of_retired(const struct context *c) {
  return clock_ahead(c->retired_work, host_of_call()->clock, 0) < 0 ? NULL : c->retired_by;
}

static const char *pending_on(int device) {
  const char *call = NULL;
  for (const struct context *c = sim.contexts; c && !call; c = c->next) {
    if (c->device != device) continue;
    call = pending_of_retired(c);
    for (const struct stream *s = c->streams; s && !call; s = s->next) call = pending_in(s);
  }
  return call;
}

void exclusive_check(const char *call, const struct block *b, uintptr_t address) {
  if (sim.options.concurrent_managed_access || !sim.options.race || b->memory != MANAGED_MEMORY) return;
  if (b->device < 0 || b->flags & CU_MEM_ATTACH_HOST) return; /* no device's, and not yet */
  const char *pending = pending_on(b->device);
  if (!pending) return;
  violation(
      "%s of managed memory at 0x%zx (%s, %zu bytes at 0x%zx) while %s may be running on device %d, which has "
      "no concurrent managed access: wait for all work of the device before the host touches its managed memory",
      call, (size_t)address, b->call, b->size, (size_t)b->address, pending, b->device);
}
