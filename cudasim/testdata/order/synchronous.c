/* Synchronous copies and fills: work of the default stream, and the order of the host after it. */
#include "order.h"

PAIR(a_fill_and_a_non_blocking_stream, "cuMemsetD8", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8_v2(m, 7, N));
  WAIT(cuStreamSynchronize(NULL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 7);
}

PAIR(a_fill_of_words_and_a_non_blocking_stream, "cuMemsetD32", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD32_v2(m, 0x07070707, N / 4));
  WAIT(follow(a, CU_STREAM_LEGACY));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 7);
}

PAIR(a_fill_waits_for_no_non_blocking_stream, "cuMemcpyDtoDAsync", "cuMemsetD16", "") {
  OK(cuMemsetD8_v2(m, 7, N));
  OK(cuStreamSynchronize(NULL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  WAIT(cuStreamSynchronize(a));
  OK(cuMemsetD16_v2(m, 0, N / 2));
  expect(n, 7);
}

PAIR(a_copy_on_the_device_and_a_non_blocking_stream, "cuMemcpyDtoD", "cuMemcpyDtoHAsync", "") {
  OK(cuMemsetD8_v2(m, 7, N));
  OK(cuMemcpyDtoD_v2(n, m, N));
  WAIT(cuCtxSynchronize());
  OK(cuMemcpyDtoHAsync_v2(p, n, N, a));
  expect_host(p, 7);
}

/* The copy that takes any memory is no different if both ends are on the device. */
PAIR(a_copy_of_any_memory_on_the_device, "cuMemcpy", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8_v2(m, 7, N));
  OK(cuMemcpy(n, m, N));
  WAIT(cuCtxSynchronize());
  OK(cuMemcpyDtoDAsync_v2(o, n, N, a));
  expect(o, 7);
}

/* A copy to the host waits for its own stream, not for a non-blocking one. */
PAIR(a_copy_to_the_host_while_a_stream_still_writes, "cuMemsetD8Async", "cuMemcpyDtoH", "") {
  unsigned char *out = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(cuStreamSynchronize(a));
  OK(cuMemcpyDtoH_v2(out, m, N));
  expect_host(out, 7);
}

PAIR(a_copy_to_the_host_and_its_kind_of_stream, "cuMemsetD8Async", "cuMemcpyDtoH", "") {
  unsigned char *out = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, PICK(x, a)));
  OK(cuMemcpyDtoH_v2(out, m, N));
  expect_host(out, 7);
}

PAIR(a_copy_to_the_device_while_a_stream_still_reads, "cuMemcpyDtoHAsync", "cuMemcpyHtoD", "") {
  unsigned char *in = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  WAIT(cuStreamSynchronize(a));
  OK(cuMemcpyHtoD_v2(m, in, N));
  expect_host(p, 7);
}

PAIR(a_copy_of_any_memory_while_a_stream_still_writes, "cuMemcpyDtoHAsync", "cuMemcpy", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  WAIT(cuStreamSynchronize(a));
  OK(cuMemcpy(address(q), address(p), N));
  expect_host(q, 7);
}

/* The host is after a copy to the host, and after all that was before it: a barrier. */
PAIR(the_host_is_after_a_copy_to_the_host, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  unsigned char *out = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, x));
  WAIT(cuMemcpyDtoH_v2(out, o, N));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 7);
}

FILL_AND_COPY(the_host_is_after_a_copy_of_page_locked_memory, x, a) { WAIT(cuMemcpyHtoD_v2(o, p, N)); }

/* A stream is synchronised before a copy from pageable memory begins: in either reading. */
PAIR(the_host_is_after_what_was_before_a_pageable_copy, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "pageable_strict=1") {
  unsigned char *in = new_pageable(N);
  OK(cuMemsetD8Async(m, 7, N, NULL));
  WAIT(cuMemcpyHtoD_v2(o, in, N));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 7);
}

/* The strict reading: the data may still be on its way when the call returns. */
PAIR(a_pageable_copy_and_a_non_blocking_stream, "cuMemcpyHtoD", "cuMemcpyDtoDAsync", "pageable_strict=1") {
  unsigned char *in = new_pageable(N);
  OK(cuMemcpyHtoD_v2(m, in, N));
  WAIT(cuStreamSynchronize(NULL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 1);
}

PAIR(a_pageable_copy_of_any_memory_and_a_non_blocking_stream, "cuMemcpy", "cuMemcpyDtoDAsync", "pageable_strict=1") {
  unsigned char *in = new_pageable(N);
  OK(cuMemcpy(m, address(in), N));
  WAIT(follow(a, NULL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 1);
}

/* A copy from page-locked memory has arrived when the call returns, in the strict reading too. */
CORRECT(a_copy_of_page_locked_memory_and_a_non_blocking_stream, "pageable_strict=1") {
  OK(cuMemcpyHtoD_v2(m, p, N));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 1);
}

/* The common use, which drivers make safe. */
CORRECT(an_upload_and_then_a_non_blocking_stream, "pageable_async=*") {
  unsigned char *in = new_pageable(N);
  OK(cuMemcpyHtoD_v2(m, in, N));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 1);
}

CORRECT(a_pageable_copy_and_a_blocking_stream, "pageable_strict=1") {
  unsigned char *in = new_pageable(N), *out = new_pageable(N);
  OK(cuMemcpyHtoD_v2(m, in, N));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, x));
  OK(cuMemcpyDtoH_v2(out, n, N));
  expect_host(out, 1);
}

CORRECT(the_host_reads_what_a_synchronous_copy_wrote, "") {
  OK(cuMemsetD8_v2(m, 7, N));
  OK(cuMemcpyDtoH_v2(p, m, N));
  cudasim_host_read(p, N);
  CHECK(p[0] == 7 && p[N - 1] == 7);
}

/* A fill of memory that the host uses has ended when the call returns. */
CORRECT(a_fill_of_page_locked_or_managed_memory, "") {
  CUdeviceptr m = new_managed(N);
  OK(cuMemsetD8_v2(address(p), 7, N));
  cudasim_host_write(p, N);
  OK(cuMemsetD8_v2(m, 7, N));
  cudasim_host_read((void *)(uintptr_t)m, N);
  expect_host(p, 7);
  expect(m, 7);
}

CORRECT(a_copy_from_host_to_host, "") {
  memset(p, 7, N);
  OK(cuMemcpyAsync(address(q), address(p), N, a));
  cudasim_host_read(q, N);
  cudasim_host_write(p, N);
  expect_host(q, 7);
}
