/* Copies and fills. */
#define GROUP "copies"
#include "rules.h"

enum { SIZE = 20000 };

static void fill_upwards(unsigned char* p, size_t size) {
  for (size_t i = 0; i < size; i++) p[i] = (unsigned char)(i * 7 + i / 256);
}

static bool is_upwards(const unsigned char* p, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (p[i] != (unsigned char)(i * 7 + i / 256)) return false;
  return true;
}

RULE(synchronous_copies_move_bytes, MANUAL, "cuMemcpyHtoD, DtoD, cuMemcpy and DtoH move the bytes, in order.") {
  CUdeviceptr a = new_memory(SIZE), b = new_memory(SIZE), c = new_memory(SIZE);
  static unsigned char in[SIZE], out[SIZE];
  fill_upwards(in, SIZE);
  OK(cuMemcpyHtoD_v2(a, in, SIZE));
  OK(cuMemcpyDtoD_v2(b, a, SIZE));
  OK(cuMemcpy(c, b, SIZE));
  OK(cuMemcpyDtoH_v2(out, c, SIZE));
  CHECK(is_upwards(out, SIZE));
}

RULE(asynchronous_copies_move_bytes, MANUAL, "The asynchronous copies move the bytes in the order of their stream.") {
  CUstream s = new_stream();
  CUdeviceptr a = new_memory(SIZE), b = new_memory(SIZE), c = new_memory(SIZE);
  unsigned char *in = new_pinned(SIZE), *out = new_pinned(SIZE);
  fill_upwards(in, SIZE);
  OK(cuMemcpyHtoDAsync_v2(a, in, SIZE, s));
  OK(cuMemcpyDtoDAsync_v2(b, a, SIZE, s));
  OK(cuMemcpyAsync(c, b, SIZE, s));
  OK(cuMemcpyDtoHAsync_v2(out, c, SIZE, s));
  OK(cuStreamSynchronize(s));
  CHECK(is_upwards(out, SIZE));
}

RULE(the_general_copy_finds_the_direction_itself, MANUAL,
     "cuMemcpy copies between pageable, page-locked and device memory by the addresses alone.") {
  CUdeviceptr m = new_memory(SIZE);
  static unsigned char in[SIZE], out[SIZE];
  unsigned char* pinned = new_pinned(SIZE);
  fill_upwards(in, SIZE);
  IS(cuMemcpy(m, address(in), SIZE), CUDA_SUCCESS);
  IS(cuMemcpy(address(pinned), m, SIZE), CUDA_SUCCESS);
  IS(cuMemcpy(address(out), address(pinned), SIZE), CUDA_SUCCESS);
  CHECK(is_upwards(out, SIZE));
  memset(out, 0, SIZE);
  IS(cuMemcpy(address(out), address(in), SIZE), CUDA_SUCCESS); /* pageable to pageable */
  CHECK(is_upwards(out, SIZE));
}

RULE(the_general_copy_takes_managed_memory, MANUAL, "cuMemcpy copies to and from managed memory.", .needs = MANAGED) {
  CUdeviceptr m = new_managed(SIZE);
  static unsigned char in[SIZE], out[SIZE];
  unsigned char* pinned = new_pinned(SIZE);
  fill_upwards(in, SIZE);
  memcpy(pinned, in, SIZE);
  IS(cuMemcpy(m, address(pinned), SIZE), CUDA_SUCCESS);
  IS(cuMemcpy(address(out), m, SIZE), CUDA_SUCCESS);
  CHECK(is_upwards(out, SIZE));
}

RULE(the_general_asynchronous_copy_finds_the_direction_itself, MANUAL,
     "cuMemcpyAsync copies between pageable, page-locked and device memory by the addresses alone.") {
  CUdeviceptr m = new_memory(SIZE);
  static unsigned char in[SIZE], out[SIZE];
  unsigned char* pinned = new_pinned(SIZE);
  fill_upwards(in, SIZE);
  IS(cuMemcpyAsync(m, address(in), SIZE, a), CUDA_SUCCESS);
  IS(cuMemcpyAsync(address(pinned), m, SIZE, a), CUDA_SUCCESS);
  IS(cuMemcpyAsync(m, address(pinned), SIZE, a), CUDA_SUCCESS);
  IS(cuMemcpyAsync(address(out), m, SIZE, a), CUDA_SUCCESS);
  OK(cuStreamSynchronize(a));
  CHECK(is_upwards(pinned, SIZE) && is_upwards(out, SIZE));
}

RULE(copies_reach_the_middle_of_allocations, MANUAL, "Addresses of copies need no alignment.") {
  CUdeviceptr m = new_memory(1000);
  unsigned char bytes[3] = {1, 2, 3}, out[5];
  fill(m, 9, 1000);
  OK(cuMemcpyHtoD_v2(m + 501, bytes, 3));
  OK(cuMemcpyDtoH_v2(out, m + 500, 5));
  CHECK(memcmp(out, "\x09\x01\x02\x03\x09", 5) == 0);
}

static void check_widths(CUdeviceptr m, CUstream s) {
  unsigned char out[64];
  OK(cuStreamSynchronize(s));
  OK(cuMemcpyDtoH_v2(out, m, 22));
  CHECK(memcmp(out, "\xEE\x11\x11\x11\xEE\xEE\x33\x22\x33\x22\xEE\xEE\x77\x66\x55\x44\x77\x66\x55\x44\xEE\xEE", 22) ==
        0);
  OK(cuMemFree_v2(m));
}

RULE(fills_have_three_widths, MANUAL, "cuMemsetD8, D16 and D32 write elements of their width, at multiples of it.") {
  fill(m, 0xEE, 64);
  OK(cuMemsetD8_v2(m + 1, 0x11, 3));
  OK(cuMemsetD16_v2(m + 6, 0x2233, 2));
  OK(cuMemsetD32_v2(m + 12, 0x44556677, 2));
  check_widths(m, NULL);
}

RULE(asynchronous_fills_have_three_widths, MANUAL, "cuMemsetD8Async, D16Async and D32Async do the same in a stream.") {
  fill(m, 0xEE, 64);
  OK(cuMemsetD8Async(m + 1, 0x11, 3, a));
  OK(cuMemsetD16Async(m + 6, 0x2233, 2, a));
  OK(cuMemsetD32Async(m + 12, 0x44556677, 2, a));
  check_widths(m, a);
}

RULE(wide_fills_are_aligned, MANUAL,
     "cuMemsetD16 and D32 at an address that is no multiple of the width are INVALID_VALUE.") {
  IS(cuMemsetD16_v2(m + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD32_v2(m + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD32Async(m + 1, 0, 1, NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(copies_of_nothing_succeed, READING, "Copies and fills of no bytes succeed.") {
  char byte = 0;
  IS(cuMemcpyHtoD_v2(m, &byte, 0), CUDA_SUCCESS);
  IS(cuMemcpyDtoH_v2(&byte, m, 0), CUDA_SUCCESS);
  IS(cuMemcpyDtoD_v2(m, m, 0), CUDA_SUCCESS);
  IS(cuMemcpyHtoDAsync_v2(m, &byte, 0, a), CUDA_SUCCESS);
  IS(cuMemcpyDtoHAsync_v2(&byte, m, 0, a), CUDA_SUCCESS);
  IS(cuMemcpyAsync(m, m, 0, a), CUDA_SUCCESS);
  IS(cuMemsetD8Async(m, 0, 0, a), CUDA_SUCCESS);
}

RULE(copies_do_not_take_host_for_device_memory, READING,
     "cuMemcpyDtoH, HtoD, DtoD and fills are INVALID_VALUE if the device address is pageable host memory.",
     .needs = NO_PAGEABLE, .alone = true) {
  unsigned char *bytes = new_pages(4096), *more = new_pages(4096);
  IS(cuMemcpyDtoH_v2(more, address(bytes), 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyHtoD_v2(address(more), bytes, 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoD_v2(m, address(bytes), 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemsetD8_v2(address(bytes), 0, 64), CUDA_ERROR_INVALID_VALUE);
}

RULE(copies_from_and_to_null_are_refused, READING, "Copies from or to the host address NULL are INVALID_VALUE.",
     .alone = true) {
  IS(cuMemcpyHtoD_v2(m, NULL, 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyDtoH_v2(NULL, m, 64), CUDA_ERROR_INVALID_VALUE);
}

static void check_late_read(unsigned char* p) {
  CUstream s = new_stream();
  CUdeviceptr m = new_memory(64);
  memset(p, 1, 64);
  close_gate(s);
  DOES_NOT_WAIT(cuMemcpyHtoDAsync_v2(m, p, 64, s));
  STAYS_PENDING(cuStreamQuery(s));
  memset(p, 2, 64);
  open_gate();
  OK(cuStreamSynchronize(s));
  CHECK(is_filled(m, 2, 64));
  OK(cuMemFree_v2(m));
  OK(cuStreamDestroy_v2(s));
}

RULE(page_locked_sources_are_read_late, MANUAL,
     "An asynchronous copy reads page-locked memory when the stream gets there.") {
  unsigned char* p = new_pinned(4096);
  check_late_read(p);
}

RULE(registered_sources_are_read_late, MANUAL,
     "An asynchronous copy reads registered memory when the stream gets there.", .needs = REGISTER) {
  unsigned char* p = new_pages(4096);
  OK(cuMemHostRegister_v2(p, 4096, 0));
  check_late_read(p);
  OK(cuMemHostUnregister(p));
}

RULE(copies_to_page_locked_memory_do_not_wait, MANUAL,
     "An asynchronous copy to page-locked memory returns before it is done.") {
  memset(p, 0, 64);
  fill(m, 1, 64);
  close_gate(a);
  DOES_NOT_WAIT(cuMemcpyDtoHAsync_v2(p, m, 64, a));
  STAYS(all_bytes(p, 0, 64));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(p, 1, 64));
}

RULE(copies_of_page_locked_to_page_locked_memory_wait, MANUAL,
     "An asynchronous copy from host memory to host memory, page-locked ones too, returns when it is done.") {
  memset(p, 8, 64);
  close_gate(a);
  WAITS(cuMemcpyAsync(address(q), address(p), 64, a));
  CHECK(all_bytes(q, 8, 64));
}

RULE(synchronous_copies_come_after_blocking_streams, MANUAL,
     "A synchronous copy to the host waits for earlier work of blocking streams.") {
  unsigned char bytes[64];
  close_gate(x);
  OK(cuMemsetD8Async(m, 1, 64, x));
  WAITS(cuMemcpyDtoH_v2(bytes, m, 64));
  CHECK(all_bytes(bytes, 1, 64));
}

RULE(synchronous_copies_do_not_wait_for_non_blocking_streams, MANUAL,
     "A synchronous copy to the host does not wait for work of non-blocking streams.") {
  unsigned char bytes[64];
  fill(m, 1, 64);
  close_gate(a);
  OK(cuMemsetD8Async(m, 2, 64, a));
  DOES_NOT_WAIT(cuMemcpyDtoH_v2(bytes, m, 64));
  CHECK(all_bytes(bytes, 1, 64));
}

RULE(the_host_does_not_wait_for_copies_on_the_device, MANUAL, "cuMemcpyDtoD returns before it is done.") {
  fill(m, 5, 64);
  close_gate(x);
  DOES_NOT_WAIT(cuMemcpyDtoD_v2(n, m, 64));
  STAYS_PENDING(cuStreamQuery(NULL));
  open_gate();
  OK(cuCtxSynchronize());
  CHECK(is_filled(n, 5, 64));
}

RULE(the_host_does_not_wait_for_fills_of_device_memory, MANUAL,
     "cuMemsetD8 of device memory returns before it is done.") {
  close_gate(x);
  DOES_NOT_WAIT(cuMemsetD8_v2(m, 6, 64));
  STAYS_PENDING(cuStreamQuery(NULL));
  open_gate();
  OK(cuCtxSynchronize());
  CHECK(is_filled(m, 6, 64));
}

RULE(the_host_waits_for_fills_of_page_locked_memory, MANUAL,
     "cuMemsetD8 of page-locked memory returns when it is done.") {
  memset(p, 0, 64);
  close_gate(x);
  WAITS(cuMemsetD8_v2(address(p), 7, 64));
  CHECK(all_bytes(p, 7, 64));
}

RULE(asynchronous_fills_never_wait, MANUAL, "cuMemsetD8Async of page-locked memory returns before it is done.") {
  memset(p, 0, 64);
  close_gate(a);
  DOES_NOT_WAIT(cuMemsetD8Async(address(p), 7, 64, a));
  STAYS(all_bytes(p, 0, 64));
  open_gate();
  OK(cuStreamSynchronize(a));
  CHECK(all_bytes(p, 7, 64));
}

RULE(a_page_locked_source_of_a_synchronous_copy_may_be_reused, MANUAL,
     "cuMemcpyHtoD from page-locked memory returns when it is done.") {
  memset(p, 1, 64);
  close_gate(x);
  WAITS(cuMemcpyHtoD_v2(m, p, 64));
  memset(p, 2, 64);
  CHECK(is_filled(m, 1, 64));
}
