/* Primary contexts: one per device, counted. Each time one is activated it gets a new
 * handle, so that a stale one is noticed; with primary=stable it keeps the first, as
 * with a driver. */
#include "sim.h"

static CUresult activate(struct device *d, CUdevice device) {
  CUresult r = context_new(device, d->primary_flags, true, &d->primary);
  if (r) return r;
  struct object *o = &d->primary->object;
  if (sim.options.stable_primary && d->primary_handle) object_rename(o, d->primary_handle);
  d->primary_handle = o->handle;
  return CUDA_SUCCESS;
}

CUresult primary_retain(CUcontext *context, CUdevice device) {
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  struct device *d = &sim.devices[device];
  if (!d->primary) {
    CUresult r = activate(d, device);
    if (r) return r;
  }
  d->primary_refs++;
  ledger_references(device);
  *context = (CUcontext)d->primary->object.handle;
  return CUDA_SUCCESS;
}

static void deactivate(struct device *d) {
  struct context *c = d->primary;
  if (!c) return;
  d->primary = NULL;
  sim.synchronisations++;
  context_kill(c);
}

/* No more than there are: one that is released was perhaps kept, and a later one is not. */
void primary_keep(int device, uint64_t references) {
  struct device *d = &sim.devices[device];
  d->primary_kept = references < d->primary_refs ? references : d->primary_refs;
  ledger_references(device);
}

CUresult primary_release(CUdevice device) {
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  struct device *d = &sim.devices[device];
  if (!d->primary_refs) return CUDA_ERROR_INVALID_CONTEXT;
  d->primary_refs--;
  primary_keep(device, d->primary_kept);
  if (!d->primary_refs) deactivate(d);
  return CUDA_SUCCESS;
}

CUresult primary_reset(CUdevice device) {
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  deactivate(&sim.devices[device]);
  sim.devices[device].primary_flags = 0;
  return CUDA_SUCCESS;
}

CUresult primary_set_flags(CUdevice device, unsigned flags) {
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (context_check_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (sim.devices[device].primary) return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  sim.devices[device].primary_flags = flags;
  return CUDA_SUCCESS;
}

CUresult primary_state(CUdevice device, unsigned *flags, int *active) {
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  if (!device_valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = sim.devices[device].primary_flags;
  *active = sim.devices[device].primary != NULL;
  return CUDA_SUCCESS;
}
