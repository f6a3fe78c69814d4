/* The legacy default stream. */
#include "order.h"

FILL_AND_COPY(the_legacy_stream_is_after_blocking_streams, PICK(x, a), CU_STREAM_LEGACY) {}

FILL_AND_COPY(blocking_streams_are_after_the_legacy_stream, CU_STREAM_LEGACY, PICK(x, a)) {}

/* A stream that is made later is a blocking stream too. */
FILL_AND_COPY(a_stream_made_after_the_work, NULL, PICK(new_blocking_stream(), new_stream())) {}

FILL_AND_COPY(blocking_streams_are_not_ordered_with_each_other, x, y) { WAIT(follow(y, x)); }

FILL_AND_COPY(legacy_work_between_blocking_streams_orders_them, x, y) {
  WAIT(cuMemsetD32Async(o, 0, N / 4, CU_STREAM_LEGACY));
}

FILL_AND_COPY(an_event_of_the_legacy_stream_is_after_blocking_streams, PICK(x, a), b) {
  OK(follow(b, CU_STREAM_LEGACY));
}

FILL_AND_COPY(the_host_waits_for_an_event_of_the_legacy_stream, x, b) {
  OK(cuEventRecord(e, NULL));
  WAIT(cuEventSynchronize(e));
}

/* A wait is work: later work of blocking streams comes after it. */
FILL_AND_COPY(a_wait_in_the_legacy_stream_holds_blocking_streams_back, a, x) { WAIT(follow(NULL, a)); }

FILL_AND_COPY(a_wait_in_the_legacy_stream_holds_back_no_non_blocking_stream, a, PICK(x, b)) { OK(follow(NULL, a)); }

FILL_AND_COPY(a_non_blocking_stream_waits_for_the_legacy_stream, NULL, a) { WAIT(follow(a, NULL)); }

FILL_AND_COPY(the_legacy_stream_waits_for_a_non_blocking_stream, a, NULL) { WAIT(follow(NULL, a)); }

FILL_AND_COPY(the_host_waits_for_the_legacy_stream, NULL, a) { WAIT(cuStreamSynchronize(CU_STREAM_LEGACY)); }

/* Work queued in a blocking stream after the legacy work is not before it. */
PAIR(blocking_work_after_the_legacy_work, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  WRONG(cuEventRecord(e, NULL));
  OK(cuMemsetD8Async(m, 7, N, x));
  RIGHT(cuEventRecord(e, NULL));
  OK(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

/* The work of a destroyed stream still comes before that of the legacy stream. */
PAIR(a_destroyed_stream_and_the_legacy_stream, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUstream s = PICK(x, a);
  OK(cuMemsetD8Async(m, 7, N, s));
  OK(cuStreamDestroy_v2(s));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, NULL));
  expect(n, 7);
}

CORRECT(null_and_the_handle_are_one_stream, "") {
  OK(cuMemsetD8Async(m, 7, N, NULL));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, CU_STREAM_LEGACY));
  expect(n, 7);
}

CORRECT(legacy_work_between_many_blocking_streams, "") {
  for (unsigned char i = 0; i < 6; i++) OK(cuMemsetD8Async(m, i, N, i % 2 ? NULL : new_blocking_stream()));
  expect(m, 5);
}
