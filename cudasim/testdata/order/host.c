/* Accesses of the host that it declares: page-locked, registered and managed memory. */
#include "order.h"

static CUdeviceptr device_address(void *host) { return (CUdeviceptr)(uintptr_t)host; }
static void *host_address(CUdeviceptr device) { return (void *)(uintptr_t)device; }

PAIR(the_host_reads_a_download, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  WAIT(cuStreamSynchronize(a));
  cudasim_host_read(p, N);
  expect_host(p, 7);
}

PAIR(the_host_writes_over_a_download, "cuMemcpyDtoHAsync", "cudasim_host_write", "") {
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  WAIT(cuCtxSynchronize());
  cudasim_host_write(p, N);
}

PAIR(the_host_writes_the_source_of_an_upload, "cuMemcpyHtoDAsync", "cudasim_host_write", "") {
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  WAIT(cuStreamSynchronize(a));
  cudasim_host_write(p, N);
}

PAIR(the_host_reads_after_an_event, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  OK(cuEventRecord(e, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuEventRecord(f, a));
  OK(cuEventSynchronize(PICK(f, e)));
  cudasim_host_read(p, N);
}

PAIR(the_host_reads_when_the_event_says_so, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuEventRecord(e, a));
  WAIT(poll_event(e));
  cudasim_host_read(p, N);
}

PAIR(the_host_reads_after_the_wrong_stream, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuStreamSynchronize(PICK(a, b)));
  cudasim_host_read(p, N);
}

/* The stream that the host waits for waits for the other one, in the right variant. */
PAIR(the_host_reads_after_a_chain, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  WAIT(follow(b, a));
  OK(cuStreamSynchronize(b));
  cudasim_host_read(p, N);
}

PAIR(the_host_reads_what_a_stream_reads_and_writes, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  unsigned char *p = new_ones(2 * N);
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  OK(cuMemcpyDtoHAsync_v2(p + N, n, N, a));
  cudasim_host_read(p, PICK(N, N + 1));
}

PAIR(the_host_writes_beside_a_pending_source, "cuMemcpyHtoDAsync", "cudasim_host_write", "") {
  unsigned char *p = new_ones(3 * N);
  OK(cuMemcpyHtoDAsync_v2(m, p + N, N, a));
  cudasim_host_write(p, PICK(N, N + 1));
  cudasim_host_write(p + 2 * N, N);
}

PAIR(registered_memory_is_read_by_the_host, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  unsigned char *out = new_registered(N);
  OK(cuMemcpyDtoHAsync_v2(out, m, N, a));
  WAIT(cuStreamSynchronize(a));
  cudasim_host_read(out, N);
}

PAIR(registered_memory_is_written_by_the_host, "cuMemcpyHtoDAsync", "cudasim_host_write", "") {
  unsigned char *in = new_registered(N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, a));
  WAIT(poll_stream(a));
  cudasim_host_write(in, N);
}

PAIR(managed_memory_is_read_by_the_host, "cuMemsetD8Async", "cudasim_host_read", "") {
  CUdeviceptr m = new_managed(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(cuStreamSynchronize(a));
  cudasim_host_read(host_address(m), N);
}

PAIR(managed_memory_is_written_by_the_host, "cuMemcpyDtoDAsync", "cudasim_host_write", "") {
  CUdeviceptr m = new_managed(N);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  WAIT(cuStreamSynchronize(a));
  cudasim_host_write(host_address(m), N);
}

/* The device fills page-locked memory at its device address. */
PAIR(mapped_memory_is_read_by_the_host, "cuMemsetD8Async", "cudasim_host_read", "") {
  CUdeviceptr m;
  OK(cuMemHostGetDevicePointer_v2(&m, p, 0));
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(cuStreamSynchronize(a));
  cudasim_host_read(p, N);
  expect_host(p, 7);
}

/* Two staging buffers in turn: the host fills each anew once it was uploaded. */
PAIR(a_staging_buffer_is_filled_too_early, "cuMemcpyHtoDAsync", "cudasim_host_write", "") {
  unsigned char *staging[2] = {new_ones(N), new_ones(N)};
  CUevent uploaded[2] = {new_event(), new_event()};
  for (int i = 0; i < 5; i++) {
    if (i == 3)
      WAIT(cuEventSynchronize(uploaded[i % 2]));
    else
      OK(cuEventSynchronize(uploaded[i % 2]));
    cudasim_host_write(staging[i % 2], N);
    OK(cuMemcpyHtoDAsync_v2(m, staging[i % 2], N, a));
    OK(cuEventRecord(uploaded[i % 2], a));
  }
}

/* A copy is ordered after earlier writes of the host. */
CORRECT(the_host_writes_and_then_uploads, "") {
  memset(p, 7, N);
  cudasim_host_write(p, N);
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  expect(m, 7);
}

CORRECT(the_host_and_a_device_read_the_same, "") {
  CUdeviceptr n = new_managed(N);
  memset(host_address(n), 7, N);
  cudasim_host_write(host_address(n), N);
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  cudasim_host_read(p, N);
  OK(cuMemcpyDtoDAsync_v2(m, n, N, a));
  cudasim_host_read(host_address(n), N);
  expect(m, 7);
}

static void write_it(void *memory) {
  memset(memory, 7, N);
  cudasim_host_write(memory, N);
}

CORRECT(one_thread_writes_and_another_one_uploads, "") {
  on_thread(write_it, p);
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  expect(m, 7);
}

/* To prefetch is not to access. */
CORRECT(a_prefetch_is_no_access, "") {
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
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuMemcpyHtoDAsync_v2(n, p, N, a));
  OK(cuMemsetD8Async(device_address(p), 8, N, a));
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  expect(n, 7);
  expect(m, 8);
}

/* The destination is the source of work before it: no garbage may be there too early. */
CORRECT(a_destination_that_is_still_read, "") {
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
  unsigned char *staging[RING];
  CUevent uploaded[RING];
  for (int i = 0; i < RING; i++) {
    staging[i] = new_ones(N);
    uploaded[i] = new_event();
  }
  for (unsigned char i = 0; i < 9; i++) {
    OK(cuEventSynchronize(uploaded[i % RING]));
    cudasim_host_write(staging[i % RING], N);
    memset(staging[i % RING], i, N);
    OK(cuMemcpyHtoDAsync_v2(m, staging[i % RING], N, a));
    OK(cuEventRecord(uploaded[i % RING], a));
  }
  expect(m, 8);
}
