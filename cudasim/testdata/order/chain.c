/* Order that goes by way of further streams. */
#include "order.h"

FILL_AND_COPY(the_first_link_of_a_chain, a, c) {
  WAIT(follow(b, a));
  OK(follow(c, b));
}

FILL_AND_COPY(the_second_link_of_a_chain, a, c) {
  OK(follow(b, a));
  OK(cuMemsetD8Async(o, 1, N, b));
  WAIT(follow(c, b));
}

/* The links are made in the wrong order: b takes over from a after c took over from b. */
FILL_AND_COPY(links_made_backwards, a, c) {
  WRONG(follow(c, b));
  OK(follow(b, a));
  RIGHT(follow(c, b));
}

PAIR(a_link_of_a_long_chain, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUstream s[12] = {new_stream()};
  OK(cuMemsetD8Async(m, 7, N, s[0]));
  for (int i = 1; i < 12; i++) {
    s[i] = new_stream();
    if (i == 6)
      WAIT(follow(s[i], s[i - 1]));
    else
      OK(follow(s[i], s[i - 1]));
  }
  OK(cuMemcpyDtoDAsync_v2(n, m, N, s[11]));
  expect(n, 7);
}

/* a -> b, c -> d: both arms write, the end reads both. */
PAIR(one_arm_of_a_diamond, "cuMemsetD16Async", "cuMemcpyDtoDAsync", "") {
  CUstream d = new_stream();
  OK(cuMemsetD32Async(m, 0, N / 4, a));
  OK(follow(b, a));
  OK(follow(c, a));
  OK(cuMemsetD8Async(m, 7, N / 2, b));
  OK(cuMemsetD16Async(m + N / 2, 0x0707, N / 4, c));
  OK(follow(d, b));
  WAIT(follow(d, c));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, d));
  expect(n, 7);
}

PAIR(the_root_of_a_diamond, "cuMemsetD32Async", "cuMemsetD16Async", "") {
  CUstream d = new_stream();
  OK(cuMemsetD32Async(m, 0, N / 4, a));
  OK(follow(b, a));
  WAIT(follow(c, a));
  OK(cuMemsetD8Async(m, 7, N / 2, b));
  OK(cuMemsetD16Async(m + N / 2, 0x0707, N / 4, c));
  OK(follow(d, b));
  OK(follow(d, c));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, d));
  expect(n, 7);
}

PAIR(the_join_waits_for_one_arm_twice, "cuMemsetD16Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async(m, 7, N / 2, b));
  OK(cuMemsetD16Async(m + N / 2, 0x0707, N / 4, c));
  OK(follow(a, b));
  OK(follow(a, PICK(c, b)));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  expect(n, 7);
}

PAIR(one_writer_of_many, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  enum { WRITERS = 8, PART = N / WRITERS };
  CUstream writers[WRITERS], reader = new_stream();
  for (int i = 0; i < WRITERS; i++) {
    writers[i] = new_stream();
    OK(cuMemsetD8Async(m + (unsigned)i * PART, 7, PART, writers[i]));
  }
  for (int i = 0; i < WRITERS; i++) {
    if (i == 3)
      WAIT(follow(reader, writers[i]));
    else
      OK(follow(reader, writers[i]));
  }
  OK(cuMemcpyDtoDAsync_v2(n, m, N, reader));
  expect(n, 7);
}

/* A later read hides no earlier one. */
PAIR(one_reader_of_many, "cuMemcpyDtoHAsync", "cuMemsetD8Async", "") {
  enum { READERS = 4 };
  CUstream readers[READERS], writer = new_stream();
  OK(cuMemsetD8Async(m, 3, N, writer));
  OK(cuStreamSynchronize(writer));
  for (int i = 0; i < READERS; i++) {
    unsigned char *out = new_ones(N);
    readers[i] = new_stream();
    OK(cuMemcpyDtoHAsync_v2(out, m, N, readers[i]));
    expect_host(out, 3);
  }
  for (int i = 0; i < READERS; i++) {
    if (i == 0)
      WAIT(follow(writer, readers[i]));
    else
      OK(follow(writer, readers[i]));
  }
  OK(cuMemsetD8Async(m, 4, N, writer));
}

/* The second reader comes after the first, so the writer waits for one: if so it is. */
PAIR(a_reader_behind_a_reader, "cuMemcpyDtoHAsync", "cuMemsetD8Async", "") {
  CUstream writer = new_stream();
  OK(cuMemsetD32Async(m, 0x03030303, N / 4, writer));
  OK(cuStreamSynchronize(writer));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  WAIT(follow(b, a));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  OK(follow(writer, b));
  OK(cuMemsetD8Async(m, 4, N, writer));
  expect_host(p, 3);
  expect(n, 3);
}

/* One buffer goes to and fro: the consumer waits for the producer, the producer of the
 * next round for the consumer. */
PAIR(a_buffer_is_used_again_before_it_was_read, "cuMemcpyDtoHAsync", "cuMemsetD8Async", "") {
  CUstream producer = new_stream(), consumer = new_stream();
  for (unsigned char round = 0; round < 3; round++) {
    unsigned char *out = new_ones(N);
    OK(cuMemsetD8Async(m, round, N, producer));
    OK(follow(consumer, producer));
    OK(cuMemcpyDtoHAsync_v2(out, m, N, consumer));
    if (round == 1)
      WAIT(follow(producer, consumer));
    else
      OK(follow(producer, consumer));
    expect_host(out, round);
  }
}

/* Two buffers in turn: each is awaited when its turn comes again. */
PAIR(a_buffer_of_two_is_used_again_too_early, "cuMemcpyDtoHAsync", "cuMemsetD8Async", "") {
  CUstream producer = new_stream(), consumer = new_stream();
  CUdeviceptr m[2] = {new_memory(N), new_memory(N)};
  CUevent read[2] = {new_event(), new_event()};
  for (int i = 0; i < 4; i++) {
    unsigned char *out = new_ones(N);
    if (i == 3)
      WAIT(cuStreamWaitEvent(producer, read[i % 2], 0));
    else
      OK(cuStreamWaitEvent(producer, read[i % 2], 0));
    OK(cuMemsetD8Async(m[i % 2], (unsigned char)i, N, producer));
    OK(follow(consumer, producer));
    OK(cuMemcpyDtoHAsync_v2(out, m[i % 2], N, consumer));
    OK(cuEventRecord(read[i % 2], consumer));
    expect_host(out, (unsigned char)i);
  }
}

/* The host waits for the last stream of a chain only. */
FILL_AND_COPY(the_host_waits_for_the_end_of_a_chain, a, c) {
  WAIT(follow(b, a));
  OK(cuStreamSynchronize(b));
}

/* The streams are ordered, but not in this direction. */
FILL_AND_COPY(order_has_a_direction, a, b) {
  WRONG(follow(a, b));
  RIGHT(follow(b, a));
}

CORRECT(writers_of_a_chain, "") {
  OK(cuMemsetD8Async(m, 1, N, a));
  OK(follow(b, a));
  OK(cuMemsetD8Async(m, 2, N, b));
  OK(follow(c, b));
  OK(cuMemsetD8Async(m, 3, N, c));
  expect(m, 3);
}

CORRECT(two_readers_between_two_writers, "") {
  for (unsigned char i = 0; i < 3; i++) {
    OK(cuMemsetD8Async(m, i, N, a));
    OK(follow(b, a));
    OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
    OK(cuMemcpyDtoDAsync_v2(o, m, N, b));
    OK(follow(a, b));
  }
  expect(n, 2);
  expect(o, 2);
}
