/* Libraries that keep memory, streams and events for their next user: what they learn for themselves is not known
 * to the program. */
#include "order.h"

#include <pthread.h>

/* Asks about the event as a library does. */
static CUresult ask(CUevent event, uintptr_t key) {
  cudasim_drain();
  cudasim_internal_begin(&key, key != 0);
  CUresult r = poll_event(event);
  cudasim_internal_end();
  return r;
}

PAIR(a_query_of_a_library_tells_the_program_nothing, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  OK(ask(e, m));
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
  cudasim_forget(m);
}

PAIR(a_program_learns_what_is_published, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  cudasim_give_back(m);
  OK(ask(e, m));
  mark();
  if (!wrong) cudasim_publish(m);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, b));
  expect(n, 7);
  cudasim_forget(m);
}

PAIR(memory_is_kept_when_no_work_uses_it, "cuMemsetD8Async", "cuMemsetD8Async", "") {
  OK(cuEventRecord(f, b));
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  cudasim_give_back(m);
  OK(ask(PICK(e, f), m));
  cudasim_keep(m, N);
  cudasim_hand_out(m, N);
  expect(m, 7);
}

/* What was learned about one piece of memory says nothing of another. */
PAIR(memory_is_not_kept_for_what_is_known_of_another, "cuMemsetD8Async", "cuMemsetD8Async", "") {
  CUdeviceptr m = new_memory(2 * N), n = m + N;
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  cudasim_give_back(m);
  cudasim_give_back(n);
  OK(ask(e, PICK(m, n)));
  cudasim_keep(m, N);
  cudasim_keep(n, N);
  cudasim_hand_out(m, 2 * N);
  expect(m, 7);
}

PAIR(memory_is_used_while_a_library_keeps_it, "cuMemsetD8Async", "library", "") {
  cudasim_keep(m, N);
  mark();
  if (!wrong) cudasim_hand_out(m, N);
  OK(cuMemsetD8Async(m, 7, N, a));
  expect(m, 7);
  OK(cuStreamSynchronize(a));
  cudasim_hand_out(m, N);
}

/* The second user is ordered after the first, as the library knows and the program does not. */
CORRECT(memory_is_handed_to_the_next_user, "") {
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  cudasim_give_back(m);
  OK(ask(e, m));
  cudasim_keep(m, N);
  cudasim_hand_out(m, N);
  OK(cuMemsetD8Async(m, 8, N, b));
  expect(m, 8);
}

PAIR(memory_is_to_be_freed_when_no_work_uses_it, "cuMemsetD8Async", "cuMemsetD8Async", "") {
  OK(cuEventRecord(f, b));
  CUdeviceptr m = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  cudasim_give_back(m);
  OK(ask(PICK(e, f), m));
  cudasim_free_later(m);
}

PAIR(memory_is_used_until_it_is_to_be_freed, "cuMemcpyDtoDAsync", "library", "") {
  CUdeviceptr m = new_memory(N);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuStreamSynchronize(a));
  mark();
  if (wrong) cudasim_free_later(m);
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  OK(cuStreamSynchronize(a));
  if (!wrong) cudasim_free_later(m);
  expect(n, 7);
}

PAIR(work_behind_a_host_function_uses_memory_that_is_to_be_freed, "cuMemcpyDtoDAsync", "waited", "") {
  CUdeviceptr m = new_memory(N);
  OK(cuMemsetD8_v2(m, 7, N));
  OK(cuStreamSynchronize(NULL));
  OK(cuLaunchHostFunc(a, await_flag, &flag));
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  mark();
  if (wrong) cudasim_free_later(m);
  raise_flag(&flag);
  OK(cuStreamSynchronize(a));
  if (!wrong) cudasim_free_later(m);
  expect(n, 7);
}

PAIR(registered_memory_is_used_until_it_is_to_be_unregistered, "cuMemcpyHtoDAsync", "library", "") {
  unsigned char *r = new_registered(N);
  mark();
  if (wrong) cudasim_free_later((uintptr_t)r);
  OK(cuMemcpyHtoDAsync_v2(n, r, N, a));
  OK(cuStreamSynchronize(a));
  if (!wrong) cudasim_free_later((uintptr_t)r);
  expect(n, 1);
}

PAIR(pool_memory_is_freed_when_no_work_uses_it, "cuMemsetD8Async", "cuMemFreeAsync", "") {
  OK(cuEventRecord(f, b));
  CUdeviceptr m = allocate(N, a);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  cudasim_give_back(m);
  OK(ask(PICK(e, f), m));
  uintptr_t key = m;
  cudasim_internal_begin(&key, 1);
  OK(cuMemFreeAsync(m, b));
  cudasim_internal_end();
}

/* The free knows what the library learned; later work of its stream does not. */
PAIR(a_stream_does_not_learn_what_a_library_knows, "cuMemsetD8Async", "cuMemcpyDtoDAsync", "") {
  CUdeviceptr m = allocate(N, a);
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuMemsetD8Async(n, 7, N, a));
  OK(cuEventRecord(e, a));
  cudasim_give_back(m);
  OK(ask(e, m));
  uintptr_t key = m;
  cudasim_internal_begin(&key, 1);
  OK(cuMemFreeAsync(m, b));
  cudasim_internal_end();
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemcpyDtoDAsync_v2(o, n, N, b));
  expect(o, 7);
}

FILL_AND_COPY(a_stream_that_is_handed_out_is_a_new_one, a, b) {
  OK(cuEventRecord(e, a));
  cudasim_drain();
  cudasim_hand_out((uintptr_t)a, 0);
  OK(cuEventRecord(f, a));
  OK(cuStreamWaitEvent(b, f, 0));
  WAIT(cuStreamWaitEvent(b, e, 0));
}

FILL_AND_COPY(an_event_that_is_handed_out_was_never_recorded, a, b) {
  OK(cuEventRecord(e, a));
  cudasim_drain();
  cudasim_hand_out((uintptr_t)e, 0);
  RIGHT(cuEventRecord(e, a));
  OK(cuStreamWaitEvent(b, e, 0));
}

/* A thread that acts on what a library has learned may give memory back. */
PAIR(a_thread_acts_on_what_is_known, "cuMemsetD8Async", "cuMemsetD8Async", "") {
  const uintptr_t key = 1;
  OK(cuMemsetD8Async(m, 7, N, a));
  OK(cuEventRecord(e, a));
  cudasim_give_back(key);
  OK(ask(e, key));
  mark();
  if (!wrong) SAME(cudasim_act(key), 0);
  cudasim_keep(m, N);
  cudasim_act(0);
  cudasim_forget(key);
  cudasim_hand_out(m, N);
  expect(m, 7);
}

/* The reader has ended, as the library knows; the program must wait for it before it writes. */
PAIR(memory_that_was_read_may_be_given_back, "cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync", "") {
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  OK(cuEventRecord(e, a));
  cudasim_give_back(n);
  OK(ask(e, n));
  mark();
  if (!wrong) cudasim_read(m, N, n);
  cudasim_forget(n);
  cudasim_keep(m, N);
  cudasim_hand_out(m, N);
}

PAIR(memory_that_was_read_is_written_after_a_wait, "cuMemcpyDtoDAsync", "cuMemsetD8Async", "") {
  OK(cuMemcpyDtoDAsync_v2(n, m, N, a));
  OK(cuEventRecord(e, a));
  OK(ask(e, n));
  cudasim_read(m, N, n);
  cudasim_forget(n);
  WAIT(cuStreamWaitEvent(b, e, 0));
  OK(cuMemsetD8Async(m, 7, N, b));
  expect(m, 7);
}
