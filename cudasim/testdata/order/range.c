/* Which bytes conflict. */
#include "order.h"

PAIR(ranges_that_share_one_byte, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUdeviceptr m = new_memory(2 * N);
  unsigned char *in = new_ones(2 * N);
  OK(cuMemcpyHtoD_v2(m, in, 2 * N));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoDAsync_v2(n, m + PICK(N, N - 1), N, b));
  expect(n, 1);
}

PAIR(ranges_that_share_their_last_byte, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUdeviceptr m = new_memory(2 * N);
  unsigned char *in = new_ones(2 * N);
  OK(cuMemcpyHtoD_v2(m, in, 2 * N));
  OK(cuMemsetD8Async(m + N, 7, N, a));
  OK(cuMemcpyDtoDAsync_v2(n, m + PICK(0, 1), N, b));
  expect(n, 1);
}

PAIR(a_range_inside_another, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUdeviceptr m = new_memory(4 * N);
  OK(cuMemsetD8Async(m, 7, 4 * N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m + N, N, b));
  expect(n, 7);
}

PAIR(one_byte_of_a_large_block, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  enum { LARGE = 1 << 20 };
  CUdeviceptr m = new_memory(LARGE), n = new_memory(LARGE);
  OK(cuMemsetD8Async(m + LARGE - 1, 7, 1, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, LARGE, b));
}

/* The part that was written last hides the earlier write, and only there. */
PAIR(a_write_that_was_partly_overwritten, "cuMemsetD16Async", "cuMemcpyDtoDAsync", "") {
  CUdeviceptr m = new_memory(2 * N);
  OK(cuMemsetD8Async(m, 7, 2 * N, a));
  OK(follow(b, a));
  OK(follow(c, a));
  OK(cuMemsetD16Async(m, 0x0808, N / 2, b));
  OK(cuMemcpyDtoDAsync_v2(n, m + PICK(N, N - 1), N, c));
  expect(n, 7);
}

PAIR(what_is_left_of_an_overwritten_write, "cuMemsetD16Async", "cuMemcpyDtoDAsync", "") {
  CUdeviceptr m = new_memory(4 * N);
  OK(cuMemsetD16Async(m, 0x0707, 2 * N, a));
  OK(follow(b, a));
  OK(cuMemsetD8Async(m + N, 8, 2 * N, b)); /* the middle */
  OK(cuMemcpyDtoDAsync_v2(n, m, N / 2, PICK(a, c)));
  OK(follow(c, b));
  OK(cuMemcpyDtoDAsync_v2(n + N / 2, m + 3 * N, N / 2, c));
  expect(n, 7);
}

/* Many small writes, one after the other, then a read of all. */
PAIR(one_of_many_small_writes, "cuMemsetD16Async", "cuMemcpyDtoDAsync", "") {
  for (unsigned i = 0; i < N; i += 16)
    if (i == 128)
      OK(cuMemsetD16Async(m + i, 0x0707, 8, c));
    else
      OK(cuMemsetD8Async(m + i, 7, 16, a));
  OK(follow(b, a));
  WAIT(follow(b, c));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(a_read_of_a_part_then_a_write_of_all, "cuMemcpyDtoHAsync", "cuMemsetD8Async", "") {
  CUdeviceptr m = new_memory(4 * N);
  unsigned char *in = new_ones(4 * N);
  OK(cuMemcpyHtoD_v2(m, in, 4 * N));
  OK(cuMemcpyDtoHAsync_v2(p, m + N, N, a));
  WAIT(follow(b, a));
  OK(cuMemsetD8Async(m, 2, 4 * N, b));
  expect_host(p, 1);
}

PAIR(halves_of_page_locked_memory, "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "") {
  CUdeviceptr m = new_memory(2 * N);
  unsigned char *p = new_ones(2 * N);
  OK(cuMemsetD8Async(m, 7, 2 * N, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuMemcpyHtoDAsync_v2(n, p + PICK(N, N - 1), N, b));
  expect(n, 1);
}

CORRECT(halves_of_one_block, "") {
  CUdeviceptr m = new_memory(2 * N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemsetD8Async(m + N, 8, N, b));
  expect(m, 7);
  expect(m + N, 8);
}

CORRECT(a_copy_inside_one_block, "") {
  CUdeviceptr m = new_memory(4 * N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoDAsync_v2(m + N, m, N, a));
  OK(cuMemsetD8Async(m + 2 * N, 8, N, b));
  OK(cuMemcpyDtoDAsync_v2(m + 3 * N, m + 2 * N, N, b));
  expect(m + N, 7);
  expect(m + 3 * N, 8);
}

/* The odd bytes belong to one stream and the even ones to another. */
CORRECT(bytes_of_two_streams_in_turn, "") {
  CUstream s[2] = {new_stream(), new_stream()};
  for (unsigned i = 0; i < 32; i++) OK(cuMemsetD8Async(m + i, 7, 1, s[i % 2]));
  OK(cuMemsetD8Async(m + 32, 7, N - 32, s[0]));
  expect(m, 7);
}

CORRECT(blocks_that_lie_side_by_side, "") {
  CUdeviceptr m[4];
  for (int i = 0; i < 4; i++) {
    m[i] = new_memory(N);
    OK(cuMemsetD8Async(m[i], (unsigned char)i, N, i % 2 ? a : b));
    expect(m[i], (unsigned char)i);
  }
}

CORRECT(copies_of_nothing, "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, 0, b));
  OK(cuMemsetD8Async(m, 8, 0, b));
  expect(m, 7);
}

/* Memory at the address of freed memory: the accesses of the freed memory are forgotten. */
CORRECT(new_memory_has_no_past, "") {
  for (int i = 0; i < 8; i++) {
    CUdeviceptr m;
    OK(cuMemAlloc_v2(&m, N));
    OK(cuMemsetD8Async(m, 7, N, i % 2 ? a : b));
    OK(cuMemFree_v2(m));
  }
}
