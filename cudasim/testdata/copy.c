/* Copies and fills. */
#include "rules.h"

static void fill_upwards(unsigned char *p, size_t size) {
  for (size_t i = 0; i < size; i++) p[i] = (unsigned char)(i * 7 + i / 256);
}

static bool is_upwards(const unsigned char *p, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (p[i] != (unsigned char)(i * 7 + i / 256)) return false;
  return true;
}

static CUdeviceptr address(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

enum { size = 20000 };

RULE(copies_move_bytes, "delay=100") {
  use(0);
  CUdeviceptr a = new_memory(size), b = new_memory(size), c = new_memory(size);
  static unsigned char in[size], out[size];
  fill_upwards(in, size);
  OK(cuMemcpyHtoD_v2(a, in, size));
  OK(cuMemcpyDtoD_v2(b, a, size));
  OK(cuMemcpy(c, b, size));
  OK(cuMemcpyDtoH_v2(out, c, size));
  CHECK(is_upwards(out, size));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
  OK(cuMemFree_v2(c));
}

RULE(asynchronous_copies_move_bytes, "delay=100") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr a = new_memory(size), b = new_memory(size), c = new_memory(size);
  unsigned char *in = new_pinned(size), *out = new_pinned(size);
  fill_upwards(in, size);
  OK(cuMemcpyHtoDAsync_v2(a, in, size, s));
  OK(cuMemcpyDtoDAsync_v2(b, a, size, s));
  OK(cuMemcpyAsync(c, b, size, s));
  OK(cuMemcpyDtoHAsync_v2(out, c, size, s));
  OK(cuStreamSynchronize(s));
  CHECK(is_upwards(out, size));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
  OK(cuMemFree_v2(c));
  OK(cuMemFreeHost(in));
  OK(cuMemFreeHost(out));
  OK(cuStreamDestroy_v2(s));
}

RULE(the_general_copy_finds_the_direction_itself, "") {
  use(0);
  CUdeviceptr m = new_memory(size), managed;
  static unsigned char in[size], out[size];
  unsigned char *pinned = new_pinned(size);
  OK(cuMemAllocManaged(&managed, size, CU_MEM_ATTACH_GLOBAL));
  fill_upwards(in, size);
  OK(cuMemcpy(m, address(in), size));           /* pageable to device */
  OK(cuMemcpy(address(pinned), m, size));       /* device to pinned */
  OK(cuMemcpy(managed, address(pinned), size)); /* pinned to managed */
  OK(cuMemcpy(address(out), managed, size));    /* managed to pageable */
  CHECK(is_upwards(out, size));
  memset(out, 0, size);
  OK(cuMemcpy(address(out), address(in), size)); /* pageable to pageable */
  CHECK(is_upwards(out, size));
  OK(cuMemFree_v2(m));
  OK(cuMemFree_v2(managed));
  OK(cuMemFreeHost(pinned));
}

RULE(copies_reach_the_middle_of_allocations, "") {
  use(0);
  CUdeviceptr m = new_memory(1000);
  unsigned char bytes[3] = {1, 2, 3}, out[5];
  OK(cuMemsetD8_v2(m, 9, 1000));
  OK(cuMemcpyHtoD_v2(m + 501, bytes, 3));
  OK(cuMemcpyDtoH_v2(out, m + 500, 5));
  CHECK(memcmp(out, "\x09\x01\x02\x03\x09", 5) == 0);
  OK(cuMemFree_v2(m));
}

RULE(fills_of_every_width, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char out[64];
  for (int async = 0; async < 2; async++) {
    OK(cuMemsetD8_v2(m, 0xEE, 64));
    OK(cuCtxSynchronize());
    OK(async ? cuMemsetD8Async(m + 1, 0x11, 3, s) : cuMemsetD8_v2(m + 1, 0x11, 3));
    OK(async ? cuMemsetD16Async(m + 6, 0x2233, 2, s) : cuMemsetD16_v2(m + 6, 0x2233, 2));
    OK(async ? cuMemsetD32Async(m + 12, 0x44556677, 2, s) : cuMemsetD32_v2(m + 12, 0x44556677, 2));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(out, m, 22));
    CHECK(memcmp(out,
                 "\xEE\x11\x11\x11\xEE\xEE\x33\x22\x33\x22\xEE\xEE"
                 "\x77\x66\x55\x44\x77\x66\x55\x44\xEE\xEE",
                 22) == 0);
  }
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(wide_fills_are_aligned, "") {
  use(0);
  CUdeviceptr m = new_memory(64);
  IS(cuMemsetD16_v2(m + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD32_v2(m + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD32Async(m + 1, 0, 1, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(m));
}

RULE(copies_of_nothing_succeed, "") {
  use(0);
  CUdeviceptr m = new_memory(64);
  char byte = 0;
  OK(cuMemcpyHtoD_v2(m, &byte, 0));
  OK(cuMemcpyDtoH_v2(&byte, m, 0));
  OK(cuMemcpyDtoD_v2(m, m, 0));
  OK(cuMemcpyHtoDAsync_v2(m, &byte, 0, NULL));
  OK(cuMemcpyDtoHAsync_v2(&byte, m, 0, NULL));
  OK(cuMemsetD8Async(m, 0, 0, NULL));
  OK(cuStreamSynchronize(NULL));
  OK(cuMemFree_v2(m));
}

RULE(copies_do_not_take_host_for_device_memory, "") {
  use(0);
  CUdeviceptr m = new_memory(64);
  unsigned char bytes[64] = {0}, more[64];
  IS(cuMemcpyDtoH_v2(more, address(bytes), 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyHtoD_v2(address(more), bytes, 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoD_v2(m, address(bytes), 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD8_v2(address(bytes), 0, 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyHtoD_v2(m, NULL, 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(NULL, m, 64), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(m));
}

RULE(pinned_sources_are_read_late, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char *p = new_pinned(64);
  struct gate gate;
  memset(p, 1, 64);
  close_gate(&gate, s);
  OK(cuMemcpyHtoDAsync_v2(m, p, 64, s));
  STAYS_PENDING(cuStreamQuery(s));
  memset(p, 2, 64);
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 2, 64));
  OK(cuMemFree_v2(m));
  OK(cuMemFreeHost(p));
  OK(cuStreamDestroy_v2(s));
}

RULE(registered_sources_are_read_late, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  static unsigned char p[4096];
  struct gate gate;
  OK(cuMemHostRegister_v2(p, sizeof p, 0));
  memset(p, 1, 64);
  close_gate(&gate, s);
  OK(cuMemcpyHtoDAsync_v2(m, p, 64, s));
  STAYS_PENDING(cuStreamQuery(s));
  memset(p, 2, 64);
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 2, 64));
  OK(cuMemHostUnregister(p));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(pageable_sources_may_be_reused_at_once, "delay=2000") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(4096);
  static unsigned char p[4096];
  memset(p, 1, sizeof p);
  OK(cuMemcpyHtoDAsync_v2(m, p, sizeof p, s));
  memset(p, 2, sizeof p);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 1, sizeof p));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(pageable_sources_are_read_late_if_asked, "pageable_async=1") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(4096);
  static unsigned char p[4096];
  struct gate gate;
  memset(p, 1, sizeof p);
  close_gate(&gate, s);
  OK(cuMemcpyHtoDAsync_v2(m, p, sizeof p, s));
  STAYS_PENDING(cuStreamQuery(s));
  memset(p, 2, sizeof p);
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 2, sizeof p));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(synchronous_copies_of_pageable_memory_are_done_on_return_even_then, "pageable_async=1,delay=2000") {
  use(0);
  CUdeviceptr m = new_memory(4096);
  static unsigned char p[4096], q[4096];
  memset(p, 1, sizeof p);
  OK(cuMemcpyHtoD_v2(m, p, sizeof p));
  memset(p, 2, sizeof p);
  OK(cuMemcpyDtoH_v2(q, m, sizeof q));
  CHECK(all_bytes(q, 1, sizeof q));
  OK(cuMemFree_v2(m));
}

RULE(pageable_destinations_are_written_on_return, "delay=2000") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(4096);
  static unsigned char p[4096];
  OK(cuMemsetD8Async(m, 1, sizeof p, s));
  OK(cuMemcpyDtoHAsync_v2(p, m, sizeof p, s));
  CHECK(all_bytes(p, 1, sizeof p));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(pageable_destinations_are_written_late_if_asked, "pageable_async=1") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(4096);
  static unsigned char p[4096];
  OK(cuMemsetD8Async(m, 1, sizeof p, s));
  cudasim_pause();
  OK(cuMemcpyDtoHAsync_v2(p, m, sizeof p, s));
  STAYS(all_bytes(p, 0, sizeof p));
  STAYS_PENDING(cuStreamQuery(s));
  cudasim_resume();
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes(p, 1, sizeof p));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(copies_to_pinned_memory_do_not_wait, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char *p = new_pinned(64);
  struct gate gate;
  memset(p, 0, 64);
  OK(cuMemsetD8Async(m, 1, 64, s));
  close_gate(&gate, s);
  OK(cuMemcpyDtoHAsync_v2(p, m, 64, s));
  STAYS(all_bytes(p, 0, 64));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes(p, 1, 64));
  OK(cuMemFree_v2(m));
  OK(cuMemFreeHost(p));
  OK(cuStreamDestroy_v2(s));
}

RULE(asynchronous_copies_between_host_memories_are_done_on_return, "delay=2000") {
  use(0);
  CUstream s = new_stream();
  unsigned char *p = new_pinned(64), q[64];
  memset(p, 8, 64);
  OK(cuMemcpyAsync(address(q), address(p), 64, s));
  CHECK(all_bytes(q, 8, 64));
  OK(cuMemFreeHost(p));
  OK(cuStreamDestroy_v2(s));
}

RULE(asynchronous_copies_between_pinned_memories_are_done_on_return, "delay=2000") {
  use(0);
  CUstream s = new_stream();
  unsigned char *p = new_pinned(64), *q = new_pinned(64);
  memset(p, 8, 64);
  OK(cuMemcpyAsync(address(q), address(p), 64, s));
  CHECK(all_bytes(q, 8, 64)); /* "from any host memory to any host memory ... fully synchronous" */
  OK(cuMemFreeHost(p));
  OK(cuMemFreeHost(q));
  OK(cuStreamDestroy_v2(s));
}

RULE(synchronous_copies_come_after_blocking_streams, "") {
  use(0);
  CUstream s = new_blocking_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char bytes[64];
  atomic_bool done;
  queue_late(&done, s);
  OK(cuMemsetD8Async(m, 1, 64, s));
  OK(cuMemcpyDtoH_v2(bytes, m, 64));
  CHECK(done && all_bytes(bytes, 1, 64));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(synchronous_copies_do_not_wait_for_non_blocking_streams, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char bytes[64];
  struct gate gate;
  OK(cuMemsetD8_v2(m, 1, 64));
  close_gate(&gate, s);
  OK(cuMemsetD8Async(m, 2, 64, s));
  OK(cuMemcpyDtoH_v2(bytes, m, 64));
  CHECK(all_bytes(bytes, 1, 64));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(the_host_does_not_wait_for_copies_on_the_device, "") {
  use(0);
  CUstream s = new_blocking_stream();
  CUdeviceptr m = new_memory(64), n = new_memory(64);
  struct gate gate;
  OK(cuMemsetD8_v2(m, 5, 64));
  close_gate(&gate, s);
  OK(cuMemcpyDtoD_v2(n, m, 64));
  OK(cuMemsetD8_v2(m, 6, 64));
  STAYS_PENDING(cuStreamQuery(NULL));
  open_gate(&gate);
  CHECK(is_filled(n, 5, 64) && is_filled(m, 6, 64));
  OK(cuMemFree_v2(m));
  OK(cuMemFree_v2(n));
  OK(cuStreamDestroy_v2(s));
}

RULE(the_host_waits_for_fills_of_pinned_memory, "delay=2000") {
  use(0);
  unsigned char *p = new_pinned(64);
  memset(p, 0, 64);
  OK(cuMemsetD8_v2(address(p), 7, 64));
  CHECK(all_bytes(p, 7, 64));
  OK(cuMemFreeHost(p));
}

RULE(the_host_waits_for_fills_of_managed_memory, "delay=2000") {
  use(0);
  CUdeviceptr m;
  OK(cuMemAllocManaged(&m, 64, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemsetD8_v2(m, 7, 64));
  CHECK(all_bytes((unsigned char *)(uintptr_t)m, 7, 64));
  OK(cuMemFree_v2(m));
}

RULE(asynchronous_fills_never_wait, "") {
  use(0);
  CUstream s = new_stream();
  unsigned char *p = new_pinned(64);
  struct gate gate;
  memset(p, 0, 64);
  close_gate(&gate, s);
  OK(cuMemsetD8Async(address(p), 7, 64, s));
  STAYS(all_bytes(p, 0, 64));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(all_bytes(p, 7, 64));
  OK(cuMemFreeHost(p));
  OK(cuStreamDestroy_v2(s));
}

/* ---- several devices ---- */

struct pair {
  CUcontext context[2];
  CUdeviceptr memory[2];
};

static struct pair two_devices(void) {
  struct pair p;
  for (int i = 0; i < 2; i++) {
    p.context[i] = use(i);
    p.memory[i] = new_memory(size);
    OK(cuMemsetD8_v2(p.memory[i], (unsigned char)(i + 1), size));
    OK(cuCtxSynchronize());
  }
  OK(cuCtxSetCurrent(p.context[0]));
  return p;
}

static void free_both(struct pair p) {
  OK(cuMemFree_v2(p.memory[0]));
  OK(cuMemFree_v2(p.memory[1]));
}

RULE(copies_go_from_device_to_device, "devices=2") {
  struct pair p = two_devices();
  OK(cuMemcpyPeer(p.memory[1], p.context[1], p.memory[0], p.context[0], size));
  CHECK(is_filled(p.memory[1], 1, size));
  SAME(reported("peer", 0), size);
  free_both(p);
}

RULE(asynchronous_copies_go_from_device_to_device, "devices=2") {
  struct pair p = two_devices();
  CUstream s = new_stream();
  struct gate gate;
  close_gate(&gate, s);
  OK(cuMemcpyPeerAsync(p.memory[1], p.context[1], p.memory[0], p.context[0], size, s));
  STAYS_PENDING(cuStreamQuery(s));
  open_gate(&gate);
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(p.memory[1], 1, size));
  OK(cuStreamDestroy_v2(s));
  free_both(p);
}

RULE(copies_between_devices_are_in_order_with_both, "devices=2") {
  struct pair p = two_devices();
  OK(cuCtxSetCurrent(p.context[1]));
  CUstream before = new_blocking_stream(), after = new_blocking_stream();
  struct gate gate;
  close_gate(&gate, before);
  OK(cuMemsetD8Async(p.memory[1], 9, size, before));
  OK(cuCtxSetCurrent(p.context[0]));
  OK(cuMemcpyPeer(p.memory[0], p.context[0], p.memory[1], p.context[1], size)); /* the host does not wait */
  OK(cuMemsetD8Async(p.memory[1], 8, size, after));                             /* but this does */
  STAYS_PENDING(cuStreamQuery(NULL));
  STAYS_PENDING(cuStreamQuery(after));
  open_gate(&gate);
  OK(cuStreamSynchronize(after));
  CHECK(is_filled(p.memory[0], 9, size));
  CHECK(is_filled(p.memory[1], 8, size));
  OK(cuStreamDestroy_v2(before));
  OK(cuStreamDestroy_v2(after));
  free_both(p);
}

RULE(copies_between_devices_need_no_peer_access, "devices=2,peer=0") {
  struct pair p = two_devices();
  int can = 1;
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  SAME(can, 0);
  IS(cuCtxEnablePeerAccess(p.context[1], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  OK(cuMemcpyPeer(p.memory[1], p.context[1], p.memory[0], p.context[0], size));
  CHECK(is_filled(p.memory[1], 1, size));
  OK(cuMemsetD8_v2(p.memory[0], 3, size));
  OK(cuMemcpyDtoD_v2(p.memory[1], p.memory[0], size));
  CHECK(is_filled(p.memory[1], 3, size));
  free_both(p);
}

RULE(peer_copies_check_their_contexts, "devices=2") {
  struct pair p = two_devices();
  int garbage[64] = {0};
  IS(cuMemcpyPeer(p.memory[1], (CUcontext)(void *)garbage, p.memory[0], p.context[0], size),
     CUDA_ERROR_INVALID_CONTEXT);
  IS(cuMemcpyPeer(p.memory[1], p.context[1], p.memory[0], p.context[0], size + 1), CUDA_ERROR_INVALID_VALUE);
  free_both(p);
}

RULE(peer_access_is_switched_on_once, "devices=2") {
  CUcontext a = use(0), b = use(1);
  int can = 0;
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  SAME(can, 1);
  OK(cuDeviceCanAccessPeer(&can, 1, 1));
  SAME(can, 0);
  IS(cuDeviceCanAccessPeer(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
  IS(cuCtxDisablePeerAccess(a), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  OK(cuCtxEnablePeerAccess(a, 0));
  IS(cuCtxEnablePeerAccess(a, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  IS(cuCtxEnablePeerAccess(a, 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuCtxSetCurrent(a)); /* the other way is another matter */
  IS(cuCtxDisablePeerAccess(b), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  OK(cuCtxSetCurrent(b));
  OK(cuCtxDisablePeerAccess(a));
  IS(cuCtxDisablePeerAccess(a), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}
