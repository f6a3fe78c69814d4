/* Allocation and free in stream order: each is a write of the whole. A missing wait may
 * meet freed memory, if it comes that late, or not: it is reported either way. */
#include "order.h"

PAIR(a_use_before_the_allocation, "cuMemAllocAsync", "cuMemsetD8Async", "") {
  CUdeviceptr m = new_pooled(a);
  WAIT(follow(b, a));
  OK(cuMemsetD8Async(m, 7, N, b));
  expect(m, 7);
}

PAIR(the_host_waits_for_an_allocation, "cuMemAllocAsync", "cuMemsetD8Async", "") {
  CUdeviceptr m = new_pooled(a);
  WAIT(cuStreamSynchronize(a));
  OK(cuMemsetD8Async(m, 7, N, b));
  expect(m, 7);
}

PAIR(a_use_of_a_part_before_the_allocation, "cuMemAllocAsync", "cuMemcpyHtoDAsync", "") {
  CUdeviceptr m = new_pooled(a);
  WAIT(follow(b, a));
  OK(cuMemcpyHtoDAsync_v2(m + N - 1, p, 1, b));
}

PAIR(an_allocation_of_a_pool_of_the_program, "cuMemAllocFromPoolAsync", "cuMemsetD8Async", "") {
  CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemoryPool pool;
  CUdeviceptr m;
  OK(cuMemPoolCreate(&pool, &properties));
  OK(cuMemAllocFromPoolAsync(&m, N, pool, a));
  WAIT(follow(b, a));
  OK(cuMemsetD8Async(m, 7, N, b));
  OK(follow(a, b));
  OK(cuMemFreeAsync(m, a));
  OK(cuMemPoolDestroy(pool));
}

PAIR(an_allocation_in_the_legacy_stream, "cuMemAllocAsync", "cuMemsetD8Async", "") {
  CUdeviceptr m = new_pooled(NULL);
  OK(cuMemsetD8Async(m, 7, N, PICK(x, a)));
  expect(m, 7);
}

PAIR(a_free_before_the_use, "cuMemsetD8Async", "cuMemFreeAsync", "") {
  CUdeviceptr m = allocate(N, a);
  OK(follow(b, a));
  OK(cuMemsetD8Async(m, 7, N, b));
  WAIT(follow(a, b));
  OK(cuMemFreeAsync(m, a));
}

PAIR(a_free_before_a_read, "cuMemcpyDtoHAsync", "cuMemFreeAsync", "") {
  CUdeviceptr m = allocate(N, a);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(follow(b, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, b));
  WAIT(cuStreamSynchronize(b));
  OK(cuMemFreeAsync(m, a));
  expect_host(p, 7);
}

PAIR(a_free_before_the_second_of_two_uses, "cuMemcpyDtoDAsync", "cuMemFreeAsync", "") {
  CUdeviceptr m = allocate(N, a);
  OK(follow(b, a));
  OK(cuMemsetD8Async(m, 7, N, b));
  WRONG(cuEventRecord(e, b));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  RIGHT(cuEventRecord(e, b));
  OK(cuStreamWaitEvent(a, e, 0));
  OK(cuMemFreeAsync(m, a));
  expect(n, 7);
}

PAIR(a_free_in_a_stream_that_knows_nothing, "cuMemsetD8Async", "cuMemFreeAsync", "") {
  CUdeviceptr m = allocate(N, a);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(b, a));
  OK(cuMemFreeAsync(m, b));
}

PAIR(a_free_before_the_allocation, "cuMemAllocAsync", "cuMemFreeAsync", "") {
  CUdeviceptr m = allocate(N, a);
  WAIT(follow(b, a));
  OK(cuMemFreeAsync(m, b));
}

/* cuMemFree takes it for granted that memory of a pool is not in use. */
PAIR(a_plain_free_of_memory_of_a_pool, "cuMemsetD8Async", "cuMemFree", "") {
  CUdeviceptr m = allocate(N, a);
  OK(cuStreamSynchronize(a));
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(cuStreamSynchronize(a));
  OK(cuMemFree_v2(m));
}

PAIR(a_plain_free_of_memory_of_a_pool_that_is_read, "cuMemcpyDtoDAsync", "cuMemFree", "") {
  CUdeviceptr m = allocate(N, a);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  OK(cuStreamSynchronize(PICK(b, a)));
  OK(cuMemFree_v2(m));
  expect(n, 7);
}

/* The pool orders a new use of memory that was freed, in any stream. */
CORRECT(memory_of_a_pool_is_used_again, "") {
  CUstream s[] = {new_stream(), new_stream()};
  for (int i = 0; i < 8; i++) {
    CUdeviceptr m = allocate(N, s[i % 2]);
    OK(cuMemsetD8Async(m, 7, N, s[i % 2]));
    OK(cuMemFreeAsync(m, s[i % 2]));
  }
}

CORRECT(allocated_here_and_freed_there, "") {
  CUdeviceptr m = allocate(N, a);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  OK(follow(c, b));
  OK(cuMemFreeAsync(m, c));
  expect(n, 7);
}

CORRECT(allocated_used_and_freed_in_one_stream, "") {
  for (unsigned char i = 0; i < 4; i++) {
    CUdeviceptr m = allocate(N, a);
    OK(cuMemsetD8Async(m, i, N, a));
    OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
    OK(cuMemFreeAsync(m, a));
  }
  expect(n, 3);
}

CORRECT(a_plain_free_after_the_host_waited, "") {
  CUdeviceptr m = allocate(N, a);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(follow(b, a));
  OK(cuMemsetD8Async(m, 8, N, b));
  OK(cuStreamSynchronize(b));
  OK(cuMemFree_v2(m));
}
