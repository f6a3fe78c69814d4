/* The places that violations and leaks name, and which violations are of one kind. */
#include "simulator.h"

static void set_from_two_streams(void) {
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m = new_memory(64);
  OK(cuMemsetD8Async(m, 0, 64, a));
  OK(cuMemsetD8Async(m, 1, 64, b));
  cudasim_drain();
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

/* The places are those of the program, which is called rules. */
static void tells_both_calls(bool callers) {
  set_from_two_streams();
  CHECK(reports("violations", "the earlier was queued at rules("));
  CHECK(reports("violations", "; the later at rules("));
  SAME(reports("violations", ") < rules("), callers);
}

SIMULATED(violations_tell_where_both_calls_were_made_if_asked, "stacks=1", .races = true, .violates = true) {
  tells_both_calls(false);
}

SIMULATED(violations_tell_who_called_the_callers_if_asked, "stacks=2", .races = true, .violates = true) {
  tells_both_calls(true);
}

/* Memory and objects; not what has no place in the program. */
SIMULATED(leaks_tell_where_they_were_made_if_asked, "stacks=1") {
  CUdeviceptr m = new_memory(64);
  CHECK(reports("leaks", "cuMemAlloc: 64 bytes at "));
  CHECK(reports("leaks", ", made at rules("));
  OK(cuMemFree_v2(m));
  CHECK(!reports("leaks", ", made at rules("));
  CUevent event = new_event();
  CHECK(reports("leaks", ", made at rules("));
  OK(cuEventDestroy_v2(event));
}

SIMULATED(what_a_library_hands_out_is_a_leak_of_its_user, "stacks=1") {
  cudasim_caller("first, in make");
  CUevent event = new_event();
  CHECK(reports("leaks", ", made at first, in make"));
  cudasim_keep((uintptr_t)event, 0);
  cudasim_caller("second, in make");
  cudasim_hand_out((uintptr_t)event, 0);
  CHECK(reports("leaks", ", made at second, in make"));
  OK(cuEventDestroy_v2(event));
}

/* A library that acts by itself does so for the one who has given the memory back. */
SIMULATED(a_free_is_made_where_the_memory_was_given_back, "stacks=1", .races = true, .violates = true) {
  CUstream a = new_stream(), b = new_stream();
  CUdeviceptr m;
  OK(cuMemAllocAsync(&m, 64, a));
  OK(cuStreamSynchronize(a));
  OK(cuMemsetD8Async(m, 0, 64, a));
  cudasim_drain();
  uintptr_t key = (uintptr_t)m;
  cudasim_caller("giver, in give");
  cudasim_give_back(key);
  cudasim_caller("a thread of the library");
  cudasim_internal_begin(&key, 1);
  OK(cuMemFreeAsync(m, b));
  cudasim_internal_end();
  CHECK(reports("violations", "; the later at giver, in give"));
}

/* What it says has to be possible for a program that has no such stream. */
SIMULATED(advice_names_no_stream_of_a_library, "stacks=1", .races = true, .violates = true) {
  CUdeviceptr m = new_memory(64);
  unsigned char *p = new_pinned(64);
  cudasim_caller("program, in memory/cudaalloc.(*Device).NewStream");
  CUstream a = new_stream();
  OK(cuMemsetD8Async(m, 0, 64, a));
  cudasim_caller("program, in cdevice.(*RecordBatch).CopyToHost");
  CUstream b = new_stream();
  OK(cuMemcpyDtoHAsync_v2(p, m, 64, b));
  CHECK(reports("violations", "call batch.WithEvent(stream) with stream 1 of GPU 0 after cuMemsetD8Async, and use"));
  cudasim_caller("program");
  cudasim_host_read(p, 64);
  CHECK(reports("violations", "call batch.Synchronize(ctx) before cudasim_host_read"));
  CHECK(!reports("violations", "with stream 2"));
  cudasim_drain();
}

SIMULATED(violations_in_streams_of_other_places_are_of_one_kind, "stacks=1", .races = true, .violates = true) {
  for (int i = 0; i < 5; i++) {
    char maker[] = "maker 0";
    maker[sizeof maker - 2] += (char)i;
    cudasim_caller(maker);
    CUstream a = new_stream(), b = new_stream();
    cudasim_caller("user");
    CUdeviceptr m = new_memory(64);
    OK(cuMemsetD8Async(m, 0, 64, a));
    OK(cuMemsetD8Async(m, 1, 64, b));
    cudasim_drain();
    OK(cuMemFree_v2(m));
  }
  CHECK(reports("violations", "made by cuStreamCreate at maker 0; 5 times"));
}

/* One kind, of two places: with the same calls and other memory, streams and sizes. */
static void repeated(int times) {
  for (int i = 0; i < times; i++) set_from_two_streams();
  for (int i = 0; i < 2; i++) set_from_two_streams();
}

SIMULATED(equal_violations_are_counted, "stacks=2", .races = true, .violates = true) {
  repeated(5);
  CHECK(reports("violations", "; 5 times"));
  CHECK(reports("violations", "; 2 times"));
}

/* Of one function, but at other places. */
SIMULATED(violations_of_calls_tell_their_places, "stacks=2", .violates = true) {
  CUdeviceptr m = new_memory(64), n = new_memory(64);
  for (int i = 0; i < 3; i++) cudasim_host_read((void *)(uintptr_t)m, 1);
  cudasim_host_read((void *)(uintptr_t)n, 1);
  cudasim_host_read((void *)(uintptr_t)m, 1);
  CHECK(reports("violations", "; the call is at rules("));
  CHECK(reports("violations", "; 3 times"));
  CHECK(!reports("violations", "; 2 times"));
  OK(cuMemFree_v2(m));
  OK(cuMemFree_v2(n));
}

SIMULATED(overwritten_sources_tell_where_their_copies_were_queued, "stacks=2,schedule=lazy", .violates = true) {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  unsigned char *p = new_pinned(64);
  OK(cuMemcpyHtoDAsync_v2(m, p, 64, s));
  p[0]++;
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyHtoDAsync_v2(m, p, 64, s));
  p[0]++;
  OK(cuStreamSynchronize(s));
  CHECK(reports("violations", "; it was queued at rules("));
  CHECK(!reports("violations", "; 2 times"));
}

/* As those of a program in Python: with nothing else to tell them apart. */
SIMULATED(violations_of_unknown_places_are_counted_by_size, "", .races = true, .violates = true) {
  CUstream a = new_stream(), b = new_stream();
  static const size_t sizes[] = {64, 64, 64, 128, 64};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    CUdeviceptr m = new_memory(sizes[i]);
    OK(cuMemsetD8Async(m, 0, 64, a));
    OK(cuMemsetD8Async(m, 0, 64, b));
  }
  CHECK(reports("violations", "; 4 times"));
  CHECK(!reports("violations", "; 5 times"));
  OK(cuCtxSynchronize());
}

SIMULATED(violations_tell_no_stacks_otherwise, "", .races = true, .violates = true) {
  set_from_two_streams();
  CHECK(!reports("violations", "queued at"));
}
