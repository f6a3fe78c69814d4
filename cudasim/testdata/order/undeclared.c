/* Accesses of the host that nothing declares. Where nothing runs before the host waits for
 * it, a source that is overwritten too early is always seen to have changed, and a
 * destination that is read too early always has garbage in it. */
#include "order.h"

CHANGES(a_source_is_overwritten, "cuMemcpyHtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *in = new_pinned(N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, s));
  WAIT(cuStreamSynchronize(s));
  memset(in, 2, N);
  expect(m, 1);
}

CHANGES(one_byte_of_a_large_source_is_overwritten, "cuMemcpyHtoDAsync", "") {
  enum { LARGE = 1 << 20 };
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(LARGE);
  unsigned char *in = new_pinned(LARGE);
  OK(cuMemcpyHtoDAsync_v2(m, in, LARGE, s));
  WAIT(cuCtxSynchronize());
  in[LARGE - 1] ^= 0x80;
  expect(m, 1);
}

CHANGES(a_registered_source_is_overwritten, "cuMemcpyAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N);
  unsigned char *in = new_registered(N);
  OK(cuMemcpyAsync(m, (CUdeviceptr)(uintptr_t)in, N, s));
  WAIT(cuStreamSynchronize(s));
  in[N / 2] = 2;
  expect(m, 1);
}

CHANGES(a_source_is_overwritten_after_the_wrong_stream, "cuMemcpyHtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(N), other = new_memory(N);
  unsigned char *in = new_pinned(N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, a));
  OK(cuMemsetD8Async(other, 7, N, b));
  OK(cuStreamSynchronize(PICK(a, b)));
  memset(in, 2, N);
  expect(m, 1);
}

CHANGES(a_staging_buffer_is_overwritten, "cuMemcpyHtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(4 * N);
  unsigned char *staging = new_pinned(N);
  for (unsigned char i = 0; i < 4; i++) {
    memset(staging, i, N);
    OK(cuMemcpyHtoDAsync_v2(m + i * N, staging, N, s));
    if (i == 2)
      WAIT(cuStreamSynchronize(s));
    else
      OK(cuStreamSynchronize(s));
    expect(m + i * N, i);
  }
}

CHANGES(a_source_of_the_legacy_stream_is_overwritten, "cuMemcpyHtoDAsync", "") {
  use(0);
  CUdeviceptr m = new_memory(N);
  unsigned char *in = new_pinned(N);
  OK(cuMemcpyHtoDAsync_v2(m, in, N, NULL));
  WAIT(cuStreamSynchronize(NULL));
  in[0] = 2;
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
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = filled_memory(7);
  unsigned char *out = new_pinned(N);
  OK(cuMemcpyDtoHAsync_v2(out, m, N, s));
  WAIT(cuStreamSynchronize(s));
  look_at(out, 7);
}

READS_GARBAGE(a_registered_destination_is_read, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = filled_memory(7);
  unsigned char *out = new_registered(N);
  OK(cuMemcpyAsync((CUdeviceptr)(uintptr_t)out, m, N, s));
  WAIT(cuStreamSynchronize(s));
  look_at(out, 7);
}

READS_GARBAGE(a_destination_is_read_after_the_wrong_stream, "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = filled_memory(7), other = new_memory(N);
  unsigned char *out = new_pinned(N);
  OK(cuMemcpyDtoHAsync_v2(out, m, N, a));
  OK(cuMemsetD8Async(other, 8, N, b));
  OK(cuStreamSynchronize(PICK(a, b)));
  look_at(out, 7);
}

READS_GARBAGE(a_destination_is_read_after_a_wait_of_before, "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = filled_memory(7);
  unsigned char *out = new_pinned(N);
  WRONG(cuStreamSynchronize(s));
  OK(cuMemcpyDtoHAsync_v2(out, m, N, s));
  RIGHT(cuStreamSynchronize(s));
  look_at(out, 7);
}

READS_GARBAGE(the_second_of_two_downloads_is_read, "") {
  use(0);
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = filled_memory(7), n = filled_memory(8);
  unsigned char *first = new_pinned(N), *second = new_pinned(N);
  OK(cuMemcpyDtoHAsync_v2(first, m, N, a));
  OK(cuMemcpyDtoHAsync_v2(second, n, N, b));
  OK(cuStreamSynchronize(a));
  WAIT(cuStreamSynchronize(b));
  look_at(second, 8);
  expect_host(first, 7);
}
