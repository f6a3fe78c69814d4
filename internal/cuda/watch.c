/* Telling a simulated driver what the library does for itself. */
#include "driver.h"

/* What `call` returns is for the library alone, and about the memory that the keys stand for. */
#define INTERNALLY(d, keys, count, call)                                     \
  if ((d)->cudasim_internal_begin) (d)->cudasim_internal_begin(keys, count); \
  cdevice_v0_cuda_result r = call;                                           \
  if ((d)->cudasim_internal_end) (d)->cudasim_internal_end();                \
  return r

cdevice_v0_cuda_result cdevice_v0_cuda_event_query_for(cdevice_v0_cuda_table d, uintptr_t context, uintptr_t event,
                                                       uintptr_t key) {
  INTERNALLY(d, &key, key != 0, cdevice_v0_cuda_event_query(d, context, event));
}

cdevice_v0_cuda_result cdevice_v0_cuda_stream_query_for(cdevice_v0_cuda_table d, uintptr_t context, uintptr_t stream,
                                                        uintptr_t key) {
  INTERNALLY(d, &key, key != 0, cdevice_v0_cuda_stream_query(d, context, stream));
}

cdevice_v0_cuda_result cdevice_v0_cuda_context_synchronize_for(cdevice_v0_cuda_table d, uintptr_t context,
                                                               const uintptr_t* streams, size_t count, int32_t* asked,
                                                               uintptr_t* keys, size_t key_count) {
  INTERNALLY(d, keys, key_count, cdevice_v0_cuda_context_synchronize_uncaptured(d, context, streams, count, asked));
}

cdevice_v0_cuda_result cdevice_v0_cuda_pool_memory_free_for(cdevice_v0_cuda_table d, uintptr_t context, uintptr_t p,
                                                            uintptr_t stream) {
  INTERNALLY(d, &p, 1, cdevice_v0_cuda_pool_memory_free(d, context, p, stream));
}

void cdevice_v0_cuda_give_back(cdevice_v0_cuda_table d, uintptr_t key) {
  if (d->cudasim_give_back) d->cudasim_give_back(key);
}

void cdevice_v0_cuda_keep(cdevice_v0_cuda_table d, uintptr_t what, size_t size) {
  if (d->cudasim_keep) d->cudasim_keep(what, size);
}

void cdevice_v0_cuda_hand_out(cdevice_v0_cuda_table d, uintptr_t what, size_t size) {
  if (d->cudasim_hand_out) d->cudasim_hand_out(what, size);
}

void cdevice_v0_cuda_free_later(cdevice_v0_cuda_table d, uintptr_t p) {
  if (d->cudasim_free_later) d->cudasim_free_later(p);
}

void cdevice_v0_cuda_publish(cdevice_v0_cuda_table d, uintptr_t key) {
  if (d->cudasim_publish) d->cudasim_publish(key);
}

uintptr_t cdevice_v0_cuda_act(cdevice_v0_cuda_table d, uintptr_t key) {
  return d->cudasim_act ? d->cudasim_act(key) : 0;
}

void cdevice_v0_cuda_forget(cdevice_v0_cuda_table d, uintptr_t key) {
  if (d->cudasim_forget) d->cudasim_forget(key);
}

void cdevice_v0_cuda_read(cdevice_v0_cuda_table d, uintptr_t p, size_t size, uintptr_t key) {
  if (d->cudasim_read) d->cudasim_read(p, size, key);
}

void cdevice_v0_cuda_cover(cdevice_v0_cuda_table d, uintptr_t key, uintptr_t context) {
  if (d->cudasim_cover) d->cudasim_cover(key, context);
}

int cdevice_v0_cuda_wants_callers(cdevice_v0_cuda_table d) {
  return d->cudasim_wants_callers && d->cudasim_wants_callers();
}

void cdevice_v0_cuda_caller(cdevice_v0_cuda_table d, const char* text) {
  if (d->cudasim_caller) d->cudasim_caller(text);
}
