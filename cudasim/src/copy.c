/* Copying and setting memory. */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* One end of a copy. Memory without a block is pageable memory of the host. */
struct end {
  struct block *block;
  char *memory; /* where the simulator may touch it */
};

enum wanted { ANY, ON_DEVICE, ON_HOST };

/* Reports whether the first and the last byte are readable. Asking the kernel avoids a crash, and
 * detects device addresses of other machines. */
static bool readable(uintptr_t address, size_t size) {
  char bytes[2];
  const struct iovec here = {bytes, sizeof bytes};
  const struct iovec there[] = {{(void *)address, 1}, {(void *)(address + size - 1), 1}};
  ssize_t read = process_vm_readv(getpid(), &here, 1, there, 2, 0);
  return read == sizeof bytes || (read < 0 && errno != EFAULT);
}

static CUresult find_end(uintptr_t address, size_t size, enum wanted wanted, struct end *out) {
  struct block *b = block_at(address);
  out->block = b;
  if (b) {
    if (size > b->size - (address - b->address)) return CUDA_ERROR_INVALID_VALUE;
    if (wanted == ON_HOST && b->memory == DEVICE_MEMORY) return CUDA_ERROR_INVALID_VALUE;
    out->memory = (char *)(address + (uintptr_t)b->shadow);
    return CUDA_SUCCESS;
  }
  out->memory = (char *)address;
  if (wanted == ON_DEVICE || size > UINTPTR_MAX - address || arena_owns(address) || block_overlaps(address, size))
    return CUDA_ERROR_INVALID_VALUE;
  return readable(address, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A device that uses the page tables of the host takes any address of the host for one of its own. */
static enum wanted by(const struct stream *s, enum wanted wanted) {
  return wanted == ON_DEVICE && device_coherent(s->context->device) ? ANY : wanted;
}

struct copy {
  uintptr_t to, from;
  size_t size;
  enum wanted to_wanted, from_wanted;
  bool async, peer;
  int order; /* of the source, if it was asked for: CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, ... */
};

static enum bytes kind_of(struct end to, struct end from) {
  if (!block_on_device(to.block)) return block_on_device(from.block) ? DTOH : HTOH;
  if (!block_on_device(from.block)) return HTOD;
  return to.block->device == from.block->device ? DTOD : PEER;
}

/* The host waits for copies from host to host, and for synchronous ones from or to the host; not
 * for those between devices or inside one. It also waits for asynchronous copies to pageable
 * memory, unless the option pageable_async is set. */
static bool waits(const struct op *op, bool async) {
  if (op->bytes == HTOH) return true;
  if (!async) return op->bytes == HTOD || op->bytes == DTOH;
  return !op->to_block && !sim.options.pageable_async;
}

/* An asynchronous copy reads pageable memory before the call returns. */
static void stage(struct op *op) {
  op->staging = fresh(op->size);
  sim_unlock();
  memcpy(op->staging, op->from, op->size);
  sim_lock();
  op->from = op->staging;
}

/* Before a synchronous copy to the device, the driver waits for the stream and reads a pageable
 * source; it may return before the data arrived, which programs hardly ever heed. */
static CUresult wait_for(struct stream *s, const struct op *op, const struct marks *before) {
  const uint64_t seq = s->queued;
  struct marks marks = {0};
  if (sim.options.pageable_strict && op->bytes == HTOD && !op->from_block)
    marks_add_all(&marks, before);
  else
    marks_of_stream(&marks, s);
  CUresult r = stream_wait(s, seq);
  host_learns(&marks);
  return r;
}

/* Unless the call specifies when its source is read, the options decide when pageable memory is
 * read. */
static bool stages(const struct copy *c, const struct block *from) {
  if (c->order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) return false;
  if (c->order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) return true;
  return !from && !sim.options.pageable_async;
}

static CUresult make(const struct copy *c, const struct stream *s, struct op **out) {
  struct end to, from;
  CUresult r = find_end(c->to, c->size, by(s, c->to_wanted), &to);
  if (!r) r = find_end(c->from, c->size, by(s, c->from_wanted), &from);
  if (!r && !c->peer) r = reach_check(s->context, to.block);
  if (!r && !c->peer) r = reach_check(s->context, from.block);
  if (r) return r;
  struct op *op = *out = op_new(OP_COPY);
  op_touch(op, to.block);
  op_touch(op, from.block);
  op->to_block = to.block;
  op->from_block = from.block;
  op->to = to.memory;
  op->from = from.memory;
  op->size = c->size;
  op->bytes = kind_of(to, from);
  op->staged = !to.block || !from.block;
  op->peer = c->peer;
  return CUDA_SUCCESS;
}

static CUresult queue(const struct copy *c, struct stream *s) {
  struct op *op;
  CUresult r = make(c, s, &op);
  if (r) return r;
  if (s->capture) return op_push(s, op);
  struct block *from = op->from_block;
  const bool wait = waits(op, c->async);
  op->waited = wait;
  s->object.refs++;
  if (!wait && stages(c, from)) {
    if (from) access_by_host(op->call, from, c->from, c->size, false);
    stage(op);
  }
  /* Which may be read now, or late, and not in the order of the stream. */
  if (c->order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY && from) access_by_host(op->call, from, c->from, c->size, false);
  struct marks before = {0};
  if (wait && sim.options.pageable_strict) marks_of_stream(&before, s);
  r = op_push(s, op);
  if (!r && wait) r = wait_for(s, op, &before);
  marks_free(&before);
  object_unref(&s->object);
  return r;
}

/* Of a graph: also from and to pageable memory, it is done in its place. */
CUresult copy_op(const struct work *w, const struct stream *s, struct op **out) {
  return make(&(struct copy){.to = w->to, .from = w->from, .size = w->size, .peer = w->peer}, s, out);
}

static CUresult run(const struct copy *c, CUstream stream) {
  struct stream *s;
  CUresult r = stream_find_current_ready(stream, FOR_COPY, &s);
  return r || !c->size ? r : queue(c, s);
}

#define TO(wanted) .to = (uintptr_t)to, .to_wanted = wanted
#define FROM(wanted) .from = (uintptr_t)from, .from_wanted = wanted, .size = size

CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size) { return run(&(struct copy){TO(ANY), FROM(ANY)}, 0); }

CUresult copy_htod(CUdeviceptr to, const void *from, size_t size) {
  return run(&(struct copy){TO(ON_DEVICE), FROM(ON_HOST)}, 0);
}

CUresult copy_dtoh(void *to, CUdeviceptr from, size_t size) {
  return run(&(struct copy){TO(ON_HOST), FROM(ON_DEVICE)}, 0);
}

CUresult copy_dtod(CUdeviceptr to, CUdeviceptr from, size_t size) {
  return run(&(struct copy){TO(ON_DEVICE), FROM(ON_DEVICE)}, 0);
}

CUresult copy_async(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return run(&(struct copy){TO(ANY), FROM(ANY), .async = true}, stream);
}

CUresult copy_htod_async(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
  return run(&(struct copy){TO(ON_DEVICE), FROM(ON_HOST), .async = true}, stream);
}

CUresult copy_dtoh_async(void *to, CUdeviceptr from, size_t size, CUstream stream) {
  return run(&(struct copy){TO(ON_HOST), FROM(ON_DEVICE), .async = true}, stream);
}

CUresult copy_dtod_async(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  return run(&(struct copy){TO(ON_DEVICE), FROM(ON_DEVICE), .async = true}, stream);
}

CUresult copy_check(CUdeviceptr to, CUdeviceptr from, size_t size) {
  struct end end;
  if (!size) return CUDA_SUCCESS;
  CUresult r = find_end(to, size, ANY, &end);
  return r ? r : find_end(from, size, ANY, &end);
}

CUresult copy_ordered(CUdeviceptr to, CUdeviceptr from, size_t size, int order, CUstream stream) {
  return run(&(struct copy){TO(ANY), FROM(ANY), .async = true, .order = order}, stream);
}

/* Memory of the host belongs to every context. */
static bool belongs(CUdeviceptr address, const struct context *c) {
  const struct block *b = block_at(address);
  return !b || b->memory != DEVICE_MEMORY || b->device == c->device;
}

static CUresult check_peers(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context) {
  const struct context *t = object_find(to_context, CONTEXT), *f = object_find(from_context, CONTEXT);
  if (!t || !f) return CUDA_ERROR_INVALID_CONTEXT;
  return belongs(to, t) && belongs(from, f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_peer_async(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size,
                         CUstream stream) {
  struct context *c;
  CUresult r = current_context(&c);
  if (!r) r = check_peers(to, to_context, from, from_context);
  return r ? r : run(&(struct copy){TO(ON_DEVICE), FROM(ON_DEVICE), .async = true, .peer = true}, stream);
}

/* Comes after all queued work of the context. */
static CUresult join(struct stream *s, struct context *c) {
  struct op *op = op_new(OP_WAIT);
  points_add_context(&op->after, c);
  marks_of_context(&op->awaited, c);
  return op_push(s, op);
}

/* Ordered with all earlier and later work of the three contexts, including their non-blocking
 * streams, as the manual requires. */
CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size) {
  struct stream *s;
  CUresult r = stream_find_current_ready(0, FOR_COPY, &s);
  if (!r) r = check_peers(to, to_context, from, from_context);
  if (r || !size) return r;
  struct context *all[] = {s->context, object_find(to_context, CONTEXT), object_find(from_context, CONTEXT)};
  for (int i = 0; i < 3 && !r; i++) r = join(s, all[i]);
  if (!r) r = queue(&(struct copy){TO(ON_DEVICE), FROM(ON_DEVICE), .peer = true}, s);
  for (int i = 0; i < 3 && !r; i++) order_barrier(all[i], s);
  return r;
}

CUresult set_op(const struct work *w, const struct stream *s, struct op **out) {
  struct end end;
  CUresult r = find_end(w->to, w->size, by(s, ON_DEVICE), &end);
  if (!r) r = reach_check(s->context, end.block);
  if (r) return r;
  struct op *op = *out = op_new(OP_SET);
  op_touch(op, end.block);
  op->to_block = end.block;
  op->to = end.memory;
  op->value = w->value;
  op->width = w->width;
  op->size = w->size;
  op->bytes = SET;
  return CUDA_SUCCESS;
}

static CUresult set(CUdeviceptr to, uint32_t value, int width, size_t count, CUstream stream, bool async) {
  struct stream *s;
  struct op *op;
  CUresult r = stream_find_current_ready(stream, FOR_WORK, &s);
  if (r || !count) return r;
  if (count > SIZE_MAX / (size_t)width || to % (unsigned)width) return CUDA_ERROR_INVALID_VALUE;
  r = set_op(&(struct work){.to = to, .size = count * (size_t)width, .value = value, .width = width}, s, &op);
  if (r) return r;
  const struct block *b = op->to_block;
  const bool wait = !async && (!b || b->memory != DEVICE_MEMORY); /* the host may read it at once */
  r = op_push(s, op);
  return r || !wait ? r : stream_finish(s);
}

CUresult set_8(CUdeviceptr to, unsigned char value, size_t count) { return set(to, value, 1, count, 0, false); }
CUresult set_16(CUdeviceptr to, unsigned short value, size_t count) { return set(to, value, 2, count, 0, false); }
CUresult set_32(CUdeviceptr to, unsigned value, size_t count) { return set(to, value, 4, count, 0, false); }

CUresult set_8_async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return set(to, value, 1, count, stream, true);
}

CUresult set_16_async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return set(to, value, 2, count, stream, true);
}

CUresult set_32_async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return set(to, value, 4, count, stream, true);
}
