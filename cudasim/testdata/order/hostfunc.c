/* Host functions: after their stream when they start, and the stream after the host when they end. */
#include "order.h"

/* The host waits for the flag in both variants; the flag implies that the work before the function
 * is done. */
PAIR(a_host_function_tells_the_host, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  WRONG(cuLaunchHostFunc(a, raise_flag, &flag));
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuLaunchHostFunc(a, raise_flag, &flag));
  await_flag(&flag);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

static void raise_flag_of_stream(CUstream stream, CUresult status, void *flag) {
  (void)stream;
  (void)status;
  raise_flag(flag);
}

PAIR(a_stream_callback_tells_the_host, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  WRONG(cuStreamAddCallback(a, raise_flag_of_stream, &flag, 0));
  OK(cuMemsetD8Async(m, 7, N, a));
  RIGHT(cuStreamAddCallback(a, raise_flag_of_stream, &flag, 0));
  await_flag(&flag);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
}

FILL_AND_COPY(a_host_function_of_the_wrong_stream, a, b) {
  OK(cuLaunchHostFunc(PICK(a, c), raise_flag, &flag));
  await_flag(&flag);
}

/* The work behind the function waits until the host lets it go: is the host after the
 * other stream by then? */
PAIR(a_host_function_waits_for_the_host, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuLaunchHostFunc(b, await_flag, &flag));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  WAIT(cuStreamSynchronize(a));
  raise_flag(&flag);
  expect(n, 7);
}

/* A write that is queued only after the copy, and still comes before it. */
PAIR(work_that_is_queued_later_and_comes_first, "cuMemcpyDtoDAsync", "cuMemsetD8Async", "") {
  OK(cuLaunchHostFunc(b, await_flag, &flag));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  OK(cuMemsetD8Async(m, 7, N, a));
  WAIT(cuStreamSynchronize(a));
  raise_flag(&flag);
  expect(n, 7);
}

/* Another stream waits for an event behind the function: it is as late. */
PAIR(an_event_behind_a_host_function, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuLaunchHostFunc(b, await_flag, &flag));
  WAIT(follow(c, b));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, c));
  OK(cuStreamSynchronize(a));
  raise_flag(&flag);
  expect(n, 7);
}

/* A function that reads or writes page-locked memory is an access of its stream. */
static void declare_read(void *memory) { cudasim_host_read(memory, N); }
static void declare_write(void *memory) { cudasim_host_write(memory, N); }

PAIR(a_host_function_reads_in_another_stream, "cuMemcpyDtoHAsync", "cudasim_host_read", "") {
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  WAIT(follow(b, a));
  OK(cuLaunchHostFunc(b, declare_read, p));
}

PAIR(a_host_function_writes_in_another_stream, "cudasim_host_write", "cuMemcpyHtoDAsync", "") {
  OK(cuMemcpyHtoDAsync_v2(m, p, N, b));
  WAIT(follow(a, b));
  OK(cuLaunchHostFunc(a, declare_write, p));
}

/* One thread calls the functions of both streams, and b's has one before: whatever begins knows what all others know.
 */
PAIR(a_host_function_does_not_know_what_another_knew, "cuMemcpyDtoHAsync", "cudasim_host_read", "threads=1") {
  static atomic_bool begun;
  begun = false;
  OK(cuLaunchHostFunc(b, raise_flag, &begun));
  await_flag(&begun);
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuLaunchHostFunc(a, raise_flag, &flag));
  WAIT(follow(b, a));
  await_flag(&flag);
  OK(cuLaunchHostFunc(b, declare_read, p));
}

struct filled {
  unsigned char *memory;
  unsigned char value;
};

static void fill_late(void *data) {
  struct filled *filled = data;
  cudasim_host_write(filled->memory, N);
  memset(filled->memory, filled->value, N);
}

/* The source is not yet there when the copy is queued: that is no change while it is pending. */
CORRECT(a_host_function_fills_the_source, "") {
  static struct filled filled;
  filled = (struct filled){new_ones(N), 7};
  OK(cuLaunchHostFunc(a, fill_late, &filled));
  OK(cuMemcpyHtoDAsync_v2(m, filled.memory, N, a));
  expect(m, 7);
}

CORRECT(a_host_function_fills_the_source_for_another_stream, "") {
  static struct filled filled;
  filled = (struct filled){new_ones(N), 7};
  OK(cuLaunchHostFunc(a, fill_late, &filled));
  OK(follow(b, a));
  OK(cuMemcpyHtoDAsync_v2(m, filled.memory, N, b));
  expect(m, 7);
}

CORRECT(the_host_fills_the_source_and_lets_the_stream_go, "") {
  OK(cuLaunchHostFunc(a, await_flag, &flag));
  OK(cuMemcpyHtoDAsync_v2(m, p, N, a));
  memset(p, 7, N);
  cudasim_host_write(p, N);
  raise_flag(&flag);
  expect(m, 7);
}

static unsigned char seen;

static void look(void *memory) {
  cudasim_host_read(memory, N);
  seen = *(unsigned char *)memory;
}

CORRECT(a_host_function_reads_what_its_stream_wrote, "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuLaunchHostFunc(a, look, p));
  OK(cuMemsetD8Async(m, 8, N, a));
  OK(cuMemcpyDtoHAsync_v2(p, m, N, a));
  OK(cuStreamSynchronize(a));
  CHECK(seen == 7);
  expect_host(p, 8);
}
