/* The legacy default stream. */
#include "order.h"

static CUstream stream_with(unsigned flags) {
  return flags & CU_STREAM_NON_BLOCKING ? new_stream() : new_blocking_stream();
}

PAIR(the_legacy_stream_is_after_blocking_streams, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = stream_with(PICK(CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING));
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, s));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, CU_STREAM_LEGACY));
  expect(n, 7);
}

PAIR(blocking_streams_are_after_the_legacy_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = stream_with(PICK(CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING));
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, CU_STREAM_LEGACY));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  expect(n, 7);
}

/* A stream that is made later is a blocking stream too. */
PAIR(a_stream_made_after_the_work, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, NULL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, stream_with(PICK(CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING))));
  expect(n, 7);
}

PAIR(blocking_streams_are_not_ordered_with_each_other, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_blocking_stream(), b = new_blocking_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(legacy_work_between_blocking_streams_orders_them, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_blocking_stream(), b = new_blocking_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N), other = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(cuMemsetD32Async(other, 0, N / 4, CU_STREAM_LEGACY));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(an_event_of_the_legacy_stream_is_after_blocking_streams, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = stream_with(PICK(CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING)), b = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(follow(b, CU_STREAM_LEGACY));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(the_host_waits_for_an_event_of_the_legacy_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_blocking_stream(), b = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, NULL));
  WAIT(cuEventSynchronize(e));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* A wait is work: later work of blocking streams comes after it. */
PAIR(a_wait_in_the_legacy_stream_holds_blocking_streams_back, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), b = new_blocking_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(follow(NULL, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(a_wait_in_the_legacy_stream_holds_back_no_non_blocking_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_stream(), b = stream_with(PICK(CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING));
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(follow(NULL, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

PAIR(a_non_blocking_stream_waits_for_the_legacy_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, NULL));
  WAIT(follow(s, NULL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  expect(n, 7);
}

PAIR(the_legacy_stream_waits_for_a_non_blocking_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, s));
  WAIT(follow(NULL, s));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, NULL));
  expect(n, 7);
}

PAIR(the_host_waits_for_the_legacy_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, NULL));
  WAIT(cuStreamSynchronize(CU_STREAM_LEGACY));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s));
  expect(n, 7);
}

/* Work queued in a blocking stream after the legacy work is not before it. */
PAIR(blocking_work_after_the_legacy_work, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream a = new_blocking_stream(), b = new_stream();
  CUevent e = new_event();
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  WRONG(cuEventRecord(e, NULL));
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuEventRecord(e, NULL));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* The work of a destroyed stream still comes before that of the legacy stream. */
PAIR(a_destroyed_stream_and_the_legacy_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  use(0);
  CUstream s = stream_with(PICK(CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING));
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, s));
  end_stream(s);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, NULL));
  expect(n, 7);
}

CORRECT(null_and_the_handle_are_one_stream, "") {
  use(0);
  CUdeviceptr m = new_memory(N), n = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, NULL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, CU_STREAM_LEGACY));
  expect(n, 7);
}

CORRECT(legacy_work_between_many_blocking_streams, "") {
  use(0);
  CUdeviceptr m = new_memory(N);
  for (unsigned char i = 0; i < 6; i++) OK(cuMemsetD8Async(m, i, N, i % 2 ? NULL : new_blocking_stream()));
  expect(m, 5);
}
