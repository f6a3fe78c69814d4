/* Accesses of the host that nothing declares. Where nothing runs before the host waits for
 * it, a source that is overwritten too early is always seen to have changed, and a
 * destination that is read too early always has garbage in it. */
#include "order.h"

CHANGES(a_source_is_overwritten, "cuMemcpyHtoDAsync", "") {
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  WAIT(cuStreamSynchronize(a));
  memset(p, 2, N);
  expect(m, 1);
}

CHANGES(one_byte_of_a_large_source_is_overwritten, "cuMemcpyHtoDAsync", "") {
  enum { LARGE = 1 << 20 };
  CUdeviceptr m = new_memory(LARGE);
  unsigned char *in = new_ones(LARGE);
  OK(cuMemcpyHtoDAsync_v2(m, in, LARGE, a));
  WAIT(cuCtxSynchronize());
  in[LARGE - 1] ^= 0x80;
  expect(m, 1);
}

CHANGES(a_registered_source_is_overwritten, "cuMemcpyAsync", "") {
  unsigned char *in = new_registered(N);
  OK(cuMemcpyAsync(m, address(in), N, a));
  WAIT(cuStreamSynchronize(a));
  in[N / 2] = 2;
  expect(m, 1);
}

CHANGES(a_source_is_overwritten_after_the_wrong_stream, "cuMemcpyHtoDAsync", "") {
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  OK(cuMemsetD8Async(n, 7, N, b));
  OK(cuStreamSynchronize(PICK(a, b)));
  memset(p, 2, N);
  expect(m, 1);
}

CHANGES(a_staging_buffer_is_overwritten, "cuMemcpyHtoDAsync", "") {
  CUdeviceptr m = new_memory(4 * N);
  unsigned char *staging = new_ones(N);
  for (unsigned char i = 0; i < 4; i++) {
    memset(staging, i, N);
    OK(cuMemcpyHtoDAsync_v2(m + i * N, staging, N, a));
    if (i == 2)
      WAIT(cuStreamSynchronize(a));
    else
      OK(cuStreamSynchronize(a));
    expect(m + i * N, i);
  }
}

CHANGES(a_source_of_the_legacy_stream_is_overwritten, "cuMemcpyHtoDAsync", "") {
  OK(cuMemcpyHtoDAsync_v2(m, p, N, NULL));
  WAIT(cuStreamSynchronize(NULL));
  p[0] = 2;
  expect(m, 1);
}

/* In the wrong variant: neither the old contents nor the new ones. */
static void look_at(const unsigned char *out, unsigned char value) {
  for (int i = 0; i < N; i++) SAME(out[i], wrong ? 0xa5 : value);
}

/* Memory that is filled, and the host knows it. */
static CUdeviceptr filled_memory(unsigned char value) {
  CUdeviceptr m = new_memory(N);
  OK(cuMemsetD8_v2(m, value, N));
  OK(cuStreamSynchronize(NULL));
  return m;
}

READS_GARBAGE(a_destination_is_read, "") {
  CUdeviceptr m = filled_memory(7);
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  WAIT(cuStreamSynchronize(a));
  look_at(p, 7);
}

READS_GARBAGE(a_registered_destination_is_read, "") {
  CUdeviceptr m = filled_memory(7);
  unsigned char *out = new_registered(N);
  OK(cuMemcpyAsync(address(out), m, N, a));
  WAIT(cuStreamSynchronize(a));
  look_at(out, 7);
}

READS_GARBAGE(a_destination_is_read_after_the_wrong_stream, "") {
  CUdeviceptr m = filled_memory(7);
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuMemsetD8Async(n, 8, N, b));
  OK(cuStreamSynchronize(PICK(a, b)));
  look_at(p, 7);
}

READS_GARBAGE(a_destination_is_read_after_a_wait_of_before, "") {
  CUdeviceptr m = filled_memory(7);
  WRONG(cuStreamSynchronize(a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  RIGHT(cuStreamSynchronize(a));
  look_at(p, 7);
}

READS_GARBAGE(the_second_of_two_downloads_is_read, "") {
  CUdeviceptr m = filled_memory(7), n = filled_memory(8);
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuMemcpyDtoHAsync_v2(q, n, N, b));
  OK(cuStreamSynchronize(a));
  WAIT(cuStreamSynchronize(b));
  look_at(q, 8);
  expect_host(p, 7);
}
