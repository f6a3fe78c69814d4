/* Batches of copies and discards. */
#include "simulator.h"

/* Then the source may be read before earlier work of the stream has written it. */
WITH_OBJECTS(a_source_that_is_read_in_any_order_has_to_be_there, "", .violates = true) {
  needs_13();
  size_t size = 100, start = 0;
  CUmemcpyAttributes any = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY};
  OK(cuMemsetD8Async(n, 2, 100, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemcpyBatchAsync_v2(&m, &n, &size, 1, &any, &start, 1, a));
  OK(cuStreamSynchronize(a));
  CHECK(!reports("violations", "\""));
  OK(cuMemsetD8Async(n, 3, 100, a));
  OK(cuMemcpyBatchAsync_v2(&m, &n, &size, 1, &any, &start, 1, a));
  OK(cuStreamSynchronize(a));
  CHECK(reports("violations", "cuMemcpyBatchAsync by the host reads"));
}

/* Neighbours are no conflict, nor are two copies that read the same. */
WITH_OBJECTS(copies_of_a_batch_are_in_no_order, "", .violates = true) {
  needs_13();
  CUdeviceptr d = new_memory(300), e = new_memory(300);
  size_t sizes[] = {100, 100, 100}, start = 0;
  CUmemcpyAttributes in_order = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  OK(cuMemsetD8Async(d, 1, 300, a));
  OK(cuMemsetD8Async(e, 1, 300, a));
  CUdeviceptr apart[] = {d, d + 100, d + 200}, same[] = {e, e, e};
  OK(cuMemcpyBatchAsync_v2(apart, same, sizes, 3, &in_order, &start, 1, a));
  CHECK(!reports("violations", "\""));
  CUdeviceptr both[] = {d, d + 200, d + 99}, from[] = {e, e, e};
  OK(cuMemcpyBatchAsync_v2(both, from, sizes, 3, &in_order, &start, 1, a));
  CHECK(reports("violations", "copies 0 and 2 of a batch"));
  cudasim_forget_violations();
  CUdeviceptr there[] = {d, e + 50, e + 200}, back[] = {e, d + 200, d + 200};
  OK(cuMemcpyBatchAsync_v2(there, back, sizes, 3, &in_order, &start, 1, a));
  CHECK(reports("violations", "copies 0 and 1 of a batch"));
  OK(cuStreamSynchronize(a));
}

/* Which of the two sources makes a driver wait was not seen, so here both do. */
WITH_OBJECTS(a_batch_that_reads_during_the_call_waits, "") {
  needs_13();
  CUdeviceptr from[] = {address(p), address(new_pages(4096))};
  size_t size = 100, start = 0;
  CUmemcpyAttributes during = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};
  for (int i = 0; i < 2; i++) {
    close_gate(a);
    WAITS(cuMemcpyBatchAsync_v2(&m, &from[i], &size, 1, &during, &start, 1, a));
    OK(cuStreamSynchronize(a));
  }
}

/* No manual says that it waits, so a program must not count on it. */
WITH_OBJECTS(the_wait_of_a_batch_orders_nothing, "", .violates = true) {
  needs_13();
  CUdeviceptr from = address(p);
  size_t size = 100, start = 0;
  CUmemcpyAttributes during = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};
  OK(cuMemsetD8Async(n, 1, 100, a));
  OK(cuMemcpyBatchAsync_v2(&m, &from, &size, 1, &during, &start, 1, a));
  OK(cuMemsetD8Async(n, 2, 100, b));
  CHECK(reports("violations", "cuMemsetD8Async"));
  OK(cuStreamSynchronize(a));
  OK(cuStreamSynchronize(b));
}

/* A capture takes it, and nothing is pending in it. */
WITH_OBJECTS(a_batch_in_a_capture_does_not_wait, "") {
  needs_13();
  CUdeviceptr from = address(p);
  size_t size = 100, start = 0;
  CUmemcpyAttributes during = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL};
  CUgraph graph = NULL;
  close_gate(a);
  OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  DOES_NOT_WAIT(cuMemcpyBatchAsync_v2(&m, &from, &size, 1, &during, &start, 1, a));
  OK(cuStreamEndCapture(a, &graph));
  OK(cuGraphDestroy(graph));
  open_gate();
  OK(cuStreamSynchronize(a));
}

WITH_OBJECTS(what_is_discarded_is_garbage_in_stream_order, "") {
  needs_13();
  CUdeviceptr m[2];
  size_t sizes[] = {100, 50}, start = 0;
  CUmemLocation places[] = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  for (int i = 0; i < 2; i++) {
    OK(cuMemAllocManaged(&m[i], 100, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemsetD8_v2(m[i], 7, 100));
  }
  unsigned char *first = (unsigned char *)(uintptr_t)m[0], *second = (unsigned char *)(uintptr_t)m[1];
  close_gate(a);
  OK(cuMemDiscardBatchAsync(m, sizes, 2, 0, a));
  STAYS(all_bytes(first, 7, 100));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(first, 0xa5, 100));
  CHECK(all_bytes(second, 0xa5, 50) && all_bytes(second + 50, 7, 50));
  memset(first, 7, 100);
  OK(cuMemDiscardAndPrefetchBatchAsync(m, sizes, 2, places, &start, 1, 0, a));
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(first, 0xa5, 100));
}
