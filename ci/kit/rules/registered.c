/* Host memory that is page-locked after it was allocated. */
#define GROUP "registered memory"
#include "rules.h"

#include <sys/mman.h>

enum { PAGE = 4096, SIZE = 16 * PAGE };

RULE(registered_memory_is_reached_by_the_device, MANUAL,
     "Registered memory has a device pointer, which is its own address where the attribute 91 is set.",
     .needs = REGISTER) {
  unsigned char* bytes = new_pages(SIZE);
  CUdeviceptr d = 0;
  OK(cuMemHostRegister_v2(bytes, SIZE, 0));
  OK(cuMemHostGetDevicePointer_v2(&d, bytes, 0));
  CHECK(!attribute(ATTRIBUTE_HOST_REGISTERED_POINTER, 0) || d == address(bytes));
  OK(cuMemsetD8_v2(d, 3, SIZE));
  OK(cuCtxSynchronize());
  CHECK(all_bytes(bytes, 3, SIZE));
  IS(cuMemHostUnregister(bytes), CUDA_SUCCESS);
}

RULE(memory_is_registered_once, MANUAL, "To register memory that is registered is HOST_MEMORY_ALREADY_REGISTERED.",
     .needs = REGISTER) {
  unsigned char* bytes = new_pages(SIZE);
  OK(cuMemHostRegister_v2(bytes, SIZE, 0));
  IS(cuMemHostRegister_v2(bytes, SIZE, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  OK(cuMemHostUnregister(bytes));
  IS(cuMemHostRegister_v2(bytes, 10, 0), CUDA_SUCCESS); /* then it can be again */
  OK(cuMemHostUnregister(bytes));
}

RULE(a_part_of_registered_memory_is_not_registered_again, MANUAL,
     "To register a range that overlaps a registered one is HOST_MEMORY_ALREADY_REGISTERED.", .needs = REGISTER,
     .alone = true) {
  unsigned char* bytes = new_pages(SIZE);
  OK(cuMemHostRegister_v2(bytes + 4 * PAGE, 4 * PAGE, 0));
  IS(cuMemHostRegister_v2(bytes + 5 * PAGE, PAGE, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  IS(cuMemHostRegister_v2(bytes, SIZE, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  IS(cuMemHostRegister_v2(bytes + 4 * PAGE + 100, 100, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

RULE(registered_ranges_may_share_a_page, READING, "Two ranges of one page can be registered if they share no byte.",
     .needs = REGISTER, .alone = true) {
  unsigned char* bytes = new_pages(SIZE);
  IS(cuMemHostRegister_v2(bytes + 100, 100, 0), CUDA_SUCCESS);
  IS(cuMemHostRegister_v2(bytes + 200, 100, 0), CUDA_SUCCESS);
  IS(cuMemHostUnregister(bytes + 100), CUDA_SUCCESS);
  IS(cuMemHostUnregister(bytes + 200), CUDA_SUCCESS);
}

RULE(memory_is_unregistered_once, MANUAL,
     "cuMemHostUnregister of memory that is not registered is HOST_MEMORY_NOT_REGISTERED.", .needs = REGISTER) {
  unsigned char* bytes = new_pages(SIZE);
  IS(cuMemHostUnregister(bytes), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  OK(cuMemHostRegister_v2(bytes, SIZE, 0));
  OK(cuMemHostUnregister(bytes));
  IS(cuMemHostUnregister(bytes), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

RULE(unregistering_takes_the_start_of_the_range, READING,
     "cuMemHostUnregister of an address inside of a registered range is INVALID_VALUE.", .needs = REGISTER,
     .alone = true) {
  unsigned char* bytes = new_pages(SIZE);
  OK(cuMemHostRegister_v2(bytes, SIZE, 0));
  IS(cuMemHostUnregister(bytes + PAGE), CUDA_ERROR_INVALID_VALUE);
}

RULE(page_locked_memory_is_not_unregistered, READING,
     "cuMemHostUnregister of memory of cuMemHostAlloc is INVALID_VALUE.", .needs = REGISTER, .alone = true) {
  IS(cuMemHostUnregister(new_pinned(64)), CUDA_ERROR_INVALID_VALUE);
}

RULE(page_locked_memory_is_not_registered, READING,
     "cuMemHostRegister of memory of cuMemHostAlloc is HOST_MEMORY_ALREADY_REGISTERED.", .needs = REGISTER,
     .alone = true) {
  IS(cuMemHostRegister_v2(new_pinned(4096), 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

RULE(nothing_is_not_registered, MANUAL, "cuMemHostRegister of no address or of no bytes is INVALID_VALUE.",
     .needs = REGISTER) {
  unsigned char* bytes = new_pages(PAGE);
  IS(cuMemHostRegister_v2(NULL, 10, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemHostRegister_v2(bytes, 0, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemHostRegister_v2(bytes, 10, 0x100), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemHostUnregister(NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(memory_that_is_not_mapped_is_not_registered, READING,
     "cuMemHostRegister of pages that are not mapped is INVALID_VALUE.", .needs = REGISTER | NO_PAGEABLE,
     .alone = true) {
  unsigned char* bytes = new_pages(SIZE);
  munmap(bytes, SIZE);
  IS(cuMemHostRegister_v2(bytes, SIZE, 0), CUDA_ERROR_INVALID_VALUE);
}

RULE(
    memory_that_is_mapped_read_only_is_registered_with_a_flag, MANUAL,
    "Memory that the host cannot write is registered with CU_MEMHOSTREGISTER_READ_ONLY where the attribute 113 is set, "
    "and with no other flags.",
    .needs = REGISTER | NO_PAGEABLE, .alone = true) {
  unsigned char* bytes = new_pages(SIZE);
  mprotect(bytes, SIZE, PROT_READ);
  CHECK(cuMemHostRegister_v2(bytes, SIZE, 0) != CUDA_SUCCESS);
  IS(cuMemHostRegister_v2(bytes, SIZE, CU_MEMHOSTREGISTER_READ_ONLY),
     attribute(ATTRIBUTE_READ_ONLY_HOST_REGISTER, 0) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
}

RULE(unregistering_waits_for_queued_work, SEEN, "cuMemHostUnregister waits for work of the device.",
     .needs = REGISTER) {
  unsigned char* bytes = new_pages(SIZE);
  OK(cuMemHostRegister_v2(bytes, SIZE, 0));
  close_gate(a);
  WAITS(cuMemHostUnregister(bytes));
}

RULE(registering_does_not_wait, READING, "cuMemHostRegister returns while work of the device is pending.",
     .needs = REGISTER) {
  unsigned char* bytes = new_pages(SIZE);
  close_gate(a);
  DOES_NOT_WAIT(cuMemHostRegister_v2(bytes, SIZE, 0));
  open_gate();
  OK(cuStreamSynchronize(a));
  OK(cuMemHostUnregister(bytes));
}

RULE(memory_of_any_alignment_is_registered, MANUAL,
     "Address and size of registered memory need not be multiples of pages.", .needs = REGISTER) {
  unsigned char* bytes = new_pages(SIZE);
  IS(cuMemHostRegister_v2(bytes + 123, 5001, 0), CUDA_SUCCESS);
  IS(cuMemHostUnregister(bytes + 123), CUDA_SUCCESS);
}

RULE(pageable_memory_has_no_device_pointer, MANUAL, "cuMemHostGetDevicePointer of pageable memory is INVALID_VALUE.",
     .needs = NO_PAGEABLE) {
  CUdeviceptr d;
  unsigned char* bytes = new_pages(PAGE);
  IS(cuMemHostGetDevicePointer_v2(&d, bytes, 0), CUDA_ERROR_INVALID_VALUE);
}
