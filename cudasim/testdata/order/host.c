/* Accesses of the host that it declares: page-locked, registered and managed memory. */
#include "order.h"

static CUdeviceptr device_address(void *host) { return (CUdeviceptr)(uintptr_t)host; }
static void *host_address(CUdeviceptr device) { return (void *)(uintptr_t)device; }

PAIR(the_host_reads_a_download, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *out = new_pinned(N);
  OK(cuMemsetD8Async(m, 7, N, s));
  OK(cuMemcpyDtoHAsync_v2(out, m, N, s));
  WAIT(cuStreamSynchronize(s));
  cudasim_host_read(out, N);
  expect_host(out, 7);
}

PAIR(the_host_writes_over_a_download, "cuMemcpyDtoHAsync", "cudasim_host_write", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *out = new_pinned(N);
  OK(cuMemcpyDtoHAsync_v2(out, m, N, s));
  WAIT(cuCtxSynchronize());
  cudasim_host_write(out, N);
}

PAIR(the_host_writes_the_source_of_an_upload, "cuMemcpyHtoDAsync", "cudasim_host_write", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *in = new_pinned(N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, s));
  WAIT(cuStreamSynchronize(s));
  cudasim_host_write(in, N);
}

PAIR(the_host_reads_after_an_event, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  use(0);
  CUstream s = new_stream();
  CUevent before = new_event(), after = new_event();
  CUdeviceptr m = new_memory(N);
  unsigned char *out = new_pinned(N);
  OK(cuEventRecord(before, s));
  OK(cuMemcpyDtoHAsync_v2(out, m, N, s));
  OK(cuEventRecord(after, s));
  OK(cuEventSynchronize(PICK(after, before)));
  cudasim_host_read(out, N);
}

PAIR(the_host_reads_when_the_event_says_so, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  use(0);
  CUstream s = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(N);
  unsigned char *out = new_pinned(N);
  OK(cuMemcpyDtoHAsync_v2(out, m, N, s));
  OK(cuEventRecord(e, s));
  WAIT(poll_event(e));
  cudasim_host_read(out, N);
}

PAIR(the_host_reads_after_the_wrong_stream, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *out = new_pinned(N);
  OK(cuMemcpyDtoHAsync_v2(out, m, N, a));
  OK(cuStreamSynchronize(PICK(a, b)));
  cudasim_host_read(out, N);
}

/* The stream that the host waits for waits for the other one, in the right variant. */
PAIR(the_host_reads_after_a_chain, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *out = new_pinned(N);
  OK(cuMemcpyDtoHAsync_v2(out, m, N, a));
  WAIT(follow(b, a));
  OK(cuStreamSynchronize(b));
  cudasim_host_read(out, N);
}

PAIR(the_host_reads_what_a_stream_reads_and_writes, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  unsigned char *p = new_pinned(2 * N);
  OK(cuMemcpyHtoDAsync_v2(m, p, N, s));
  OK(cuMemcpyDtoHAsync_v2(p + N, n, N, s));
  cudasim_host_read(p, PICK(N, N + 1));
}

PAIR(the_host_writes_beside_a_pending_source, "cuMemcpyHtoDAsync", "cudasim_host_write", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *p = new_pinned(3 * N);
  OK(cuMemcpyHtoDAsync_v2(m, p + N, N, s));
  cudasim_host_write(p, PICK(N, N + 1));
  cudasim_host_write(p + 2 * N, N);
}

PAIR(registered_memory_is_read_by_the_host, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *out = new_registered(N);
  OK(cuMemcpyDtoHAsync_v2(out, m, N, s));
  WAIT(cuStreamSynchronize(s));
  cudasim_host_read(out, N);
}

PAIR(registered_memory_is_written_by_the_host, "cuMemcpyHtoDAsync", "cudasim_host_write", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *in = new_registered(N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, s));
  WAIT(poll_stream(s));
  cudasim_host_write(in, N);
}

PAIR(managed_memory_is_read_by_the_host, "cuMemsetD8Async", "cudasim_host_read", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_managed(N);
  OK(cuMemsetD8Async(m, 7, N, s));
  WAIT(cuStreamSynchronize(s));
  cudasim_host_read(host_address(m), N);
}

PAIR(managed_memory_is_written_by_the_host, "cuMemcpyDtoDAsync", "cudasim_host_write", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_managed(N), n = new_memory(N);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  WAIT(cuStreamSynchronize(s));
  cudasim_host_write(host_address(m), N);
}

/* The device fills page-locked memory at its device address. */
PAIR(mapped_memory_is_read_by_the_host, "cuMemsetD8Async", "cudasim_host_read", "") {
  use(0);
  CUstream s = new_stream();
  unsigned char *p = new_pinned(N);
  CUdeviceptr m;
  OK(cuMemHostGetDevicePointer_v2(&m, p, 0));
  OK(cuMemsetD8Async(m, 7, N, s));
  WAIT(cuStreamSynchronize(s));
  cudasim_host_read(p, N);
  expect_host(p, 7);
}

/* Two staging buffers in turn: the host fills each anew once it was uploaded. */
PAIR(a_staging_buffer_is_filled_too_early, "cuMemcpyHtoDAsync", "cudasim_host_write", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *staging[2] = {new_pinned(N), new_pinned(N)};
  CUevent uploaded[2] = {new_event(), new_event()};
  for (int i = 0; i < 5; i++) {
    if (i == 3)
      WAIT(cuEventSynchronize(uploaded[i % 2]));
    else
      OK(cuEventSynchronize(uploaded[i % 2]));
    cudasim_host_write(staging[i % 2], N);
    OK(cuMemcpyHtoDAsync_v2(m, staging[i % 2], N, s));
    OK(cuEventRecord(uploaded[i % 2], s));
  }
}

/* A copy is ordered after earlier writes of the host. */
CORRECT(the_host_writes_and_then_uploads, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *in = new_pinned(N);
  memset(in, 7, N);
  cudasim_host_write(in, N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, s));
  expect(m, 7);
}

CORRECT(the_host_and_a_device_read_the_same, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_managed(N);
  unsigned char *in = new_pinned(N);
  memset(host_address(n), 7, N);
  cudasim_host_write(host_address(n), N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, s));
  cudasim_host_read(in, N);
  OK(cuMemcpyDtoDAsync_v2(m, n, N, s));
  cudasim_host_read(host_address(n), N);
  expect(m, 7);
}

static void write_it(void *memory) {
  memset(memory, 7, N);
  cudasim_host_write(memory, N);
}

CORRECT(one_thread_writes_and_another_one_uploads, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *in = new_pinned(N);
  on_thread(write_it, in);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, s));
  expect(m, 7);
}

/* To prefetch is not to access. */
CORRECT(a_prefetch_is_no_access, "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_managed(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemPrefetchAsync(m, N, 0, b));
  OK(cuMemAdvise(m, N, 1, 0));
  OK(cuStreamSynchronize(a));
  cudasim_host_read(host_address(m), N);
  expect(m, 7);
}

/* The source is written by the work before: it changes while the copy is queued. */
CORRECT(a_stream_writes_the_source_of_its_next_copy, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  unsigned char *between = new_pinned(N);
  OK(cuMemsetD8Async(m, 7, N, s));
  OK(cuMemcpyDtoHAsync_v2(between, m, N, s));
  OK(cuMemcpyHtoDAsync_v2(n, between, N, s));
  OK(cuMemsetD8Async(device_address(between), 8, N, s));
  OK(cuMemcpyHtoDAsync_v2(m, between, N, s));
  expect(n, 7);
  expect(m, 8);
}

/* The destination is the source of work before it: no garbage may be there too early. */
CORRECT(a_destination_that_is_still_read, "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  unsigned char *p = new_pinned(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemcpyHtoDAsync_v2(n, p, N, a));
  OK(follow(b, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, b));
  expect(n, 1);
  expect_host(p, 7);
}

/* Memory that is registered again has no past. */
CORRECT(memory_is_registered_again, "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *p = new_pageable(N);
  OK(cuMemsetD8_v2(m, 7, N));
  OK(cuStreamSynchronize(NULL));
  for (int i = 0; i < 4; i++) {
    OK(cuMemHostRegister_v2(p, N, 0));
    OK(cuMemcpyDtoHAsync_v2(p, m, N, i % 2 ? a : b));
    OK(cuStreamSynchronize(i % 2 ? a : b));
    OK(cuMemHostUnregister(p));
    CHECK(p[0] == 7);
  }
}

CORRECT(a_ring_of_staging_buffers, "") {
  enum { RING = 3 };
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *staging[RING];
  CUevent uploaded[RING];
  for (int i = 0; i < RING; i++) {
    staging[i] = new_pinned(N);
    uploaded[i] = new_event();
  }
  for (unsigned char i = 0; i < 9; i++) {
    OK(cuEventSynchronize(uploaded[i % RING]));
    cudasim_host_write(staging[i % RING], N);
    memset(staging[i % RING], i, N);
    OK(cuMemcpyHtoDAsync_v2(m, staging[i % RING], N, s));
    OK(cuEventRecord(uploaded[i % RING], s));
  }
  expect(m, 8);
}
