/* Queries about an address. */
#define GROUP "pointers"
#include "rules.h"

static int int_of(CUdeviceptr p, CUpointer_attribute name) {
  int value = -77;
  OK(cuPointerGetAttribute(&value, name, p));
  return value;
}

static unsigned long long address_of(CUdeviceptr p, CUpointer_attribute name) {
  unsigned long long value = 0;
  OK(cuPointerGetAttribute(&value, name, p));
  return value;
}

static bool is_managed(CUdeviceptr p) {
  unsigned value = 0;
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
  return (value & 0xff) != 0;
}

RULE(attributes_of_device_memory, MANUAL, "Type, device, context, device pointer and range of device memory.") {
  CUcontext context = use(0), of = NULL;
  CUdeviceptr m = new_memory(1000);
  SAME(int_of(m, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
  SAME(int_of(m + 999, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
  CHECK(!is_managed(m));
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, m));
  CHECK(of == context);
  CHECK(address_of(m + 7, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == m + 7);
  CHECK(address_of(m + 7, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) == m);
  SAME(address_of(m + 7, CU_POINTER_ATTRIBUTE_RANGE_SIZE), 1000);
}

RULE(device_memory_has_no_host_pointer, MANUAL, "HOST_POINTER of device memory is INVALID_VALUE.") {
  CUdeviceptr m = new_memory(1000);
  unsigned long long host;
  IS(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, m), CUDA_ERROR_INVALID_VALUE);
}

RULE(freed_memory_has_no_attributes, MANUAL, "Attributes of memory that was freed are INVALID_VALUE.", .alone = true) {
  CUdeviceptr m = new_memory(64 << 20);
  int type;
  OK(cuMemFree_v2(m));
  IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, m), CUDA_ERROR_INVALID_VALUE);
}

RULE(memory_of_the_second_device_is_of_it, MANUAL,
     "DEVICE_ORDINAL and CONTEXT of memory of another device are that device's.", .needs = TWO) {
  CUcontext first = use(0), context = use(1), of = NULL;
  CUdeviceptr m = new_memory(1000);
  OK(cuCtxSetCurrent(first));
  SAME(int_of(m, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 1);
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, m));
  CHECK(of == context);
}

RULE(attributes_of_page_locked_memory, MANUAL, "Type, device, device and host pointer of page-locked memory.") {
  unsigned char* host = new_pinned(1000);
  CUdeviceptr p = address(host);
  SAME(int_of(p, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_HOST);
  SAME(int_of(p, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
  CHECK(!is_managed(p));
  CHECK(address_of(p + 7, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == p + 7);
  CHECK(address_of(p + 7, CU_POINTER_ATTRIBUTE_HOST_POINTER) == p + 7);
  SAME(int_of(p, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS), 3);
}

RULE(attributes_of_registered_memory, MANUAL,
     "Registered memory has the type HOST and a device pointer, until it is not.", .needs = REGISTER) {
  unsigned char* bytes = new_pages(8192);
  CUdeviceptr p = address(bytes);
  int type;
  OK(cuMemHostRegister_v2(bytes, 8192, 0));
  SAME(int_of(p + 5000, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_HOST);
  if (attribute(ATTRIBUTE_HOST_REGISTERED_POINTER, 0)) {
    CHECK(address_of(p + 7, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == p + 7);
  }
  OK(cuMemHostUnregister(bytes));
  IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p), CUDA_ERROR_INVALID_VALUE);
}

RULE(attributes_of_managed_memory, MANUAL, "Managed memory says so, and has one pointer for host and device.",
     .needs = MANAGED) {
  CUdeviceptr m = new_managed(1000);
  CHECK(is_managed(m + 999));
  CHECK(address_of(m + 7, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == m + 7);
  CHECK(address_of(m + 7, CU_POINTER_ATTRIBUTE_HOST_POINTER) == m + 7);
}

RULE(managed_memory_has_the_type_device, SEEN, "The memory type of managed memory is DEVICE.", .needs = MANAGED) {
  CUdeviceptr m = new_managed(1000);
  SAME(int_of(m, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
}

RULE(attributes_of_memory_of_a_pool, MANUAL, "Memory of a pool has the type DEVICE, its device, and its pool.",
     .needs = POOLS) {
  CUdeviceptr m;
  CUmemoryPool pool = NULL, of = NULL;
  OK(cuMemAllocAsync(&m, 1000, NULL));
  OK(cuStreamSynchronize(NULL));
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  SAME(int_of(m, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
  SAME(int_of(m, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, m));
  CHECK(of == pool);
  OK(cuMemFreeAsync(m, NULL));
}

RULE(pool_memory_has_attributes_before_it_is_there, READING,
     "Type and device of pool memory are known when cuMemAllocAsync has returned, while the stream is held back.",
     .needs = POOLS) {
  CUdeviceptr m;
  close_gate(a);
  OK(cuMemAllocAsync(&m, 1000, a));
  SAME(int_of(m, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
  SAME(int_of(m, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
  OK(cuMemFreeAsync(m, a));
}

RULE(unknown_addresses_have_no_attributes, MANUAL,
     "cuPointerGetAttribute of an address that the driver does not know is INVALID_VALUE.") {
  int value;
  unsigned char* bytes = new_pages(4096);
  IS(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(bytes)), CUDA_ERROR_INVALID_VALUE);
  IS(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0), CUDA_ERROR_INVALID_VALUE);
}

RULE(unknown_attributes_are_refused, MANUAL,
     "cuPointerGetAttribute of an unknown attribute, or to NULL, is INVALID_VALUE.", .alone = true) {
  int value;
  CUdeviceptr m = new_memory(64);
  IS(cuPointerGetAttribute(&value, (CUpointer_attribute)1000, m), CUDA_ERROR_INVALID_VALUE);
  IS(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, m), CUDA_ERROR_INVALID_VALUE);
}

struct asked {
  CUcontext context;
  unsigned type;
  CUdeviceptr device, start;
  void* host;
  unsigned managed;
  int ordinal;
};

static struct asked ask(CUdeviceptr p) {
  struct asked a;
  memset(&a, 0x5A, sizeof a);
  a.managed = 0;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,  CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
  };
  void* values[] = {&a.context, &a.type, &a.device, &a.start, &a.host, &a.managed, &a.ordinal};
  OK(cuPointerGetAttributes(7, attributes, values, p));
  return a;
}

RULE(many_attributes_are_had_at_once, MANUAL,
     "cuPointerGetAttributes answers several attributes; those without a value are 0.") {
  CUcontext context = use(0);
  CUdeviceptr m = new_memory(1000);
  struct asked a = ask(m + 5);
  CHECK(a.context == context);
  CHECK(a.type == CU_MEMORYTYPE_DEVICE && a.device == m + 5 && a.start == m);
  CHECK(a.host == NULL && !a.managed);
  SAME(a.ordinal, 0);
}

RULE(many_attributes_of_pageable_memory_are_zero_and_no_error, MANUAL,
     "cuPointerGetAttributes of an unknown address succeeds: no context, no type, not managed, and the device -2.") {
  unsigned char* bytes = new_pages(4096);
  struct asked a = ask(address(bytes));
  CHECK(a.context == NULL);
  SAME(a.type, 0);
  SAME(a.managed, 0);
  SAME(a.ordinal, CU_DEVICE_INVALID);
  a = ask(0);
  CHECK(a.context == NULL && a.type == 0);
}

RULE(pageable_memory_has_no_pointers_among_many_attributes, READING,
     "The device and the host pointer of an unknown address are 0 in cuPointerGetAttributes.") {
  struct asked a = ask(address(new_pages(4096)));
  CHECK(a.device == 0);
  CHECK(a.host == NULL);
}

RULE(many_attributes_of_page_locked_memory, MANUAL, "cuPointerGetAttributes of page-locked memory has both pointers.") {
  unsigned char* p = new_pinned(1000);
  struct asked a = ask(address(p) + 5);
  SAME(a.type, CU_MEMORYTYPE_HOST);
  CHECK(a.host == p + 5 && a.device == address(p) + 5 && !a.managed);
}

RULE(boolean_attributes_are_four_bytes, SEEN, "IS_MANAGED and MAPPED write four bytes.", .needs = MANAGED) {
  CUdeviceptr m = new_managed(1000);
  CUpointer_attribute booleans[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MAPPED};
  for (int i = 0; i < 2; i++) {
    unsigned char one[8], many[8];
    void* values[] = {many};
    memset(one, 0xEE, sizeof one);
    memset(many, 0xEE, sizeof many);
    OK(cuPointerGetAttribute(one, booleans[i], m));
    OK(cuPointerGetAttributes(1, &booleans[i], values, m));
    SAME(one[0], 1);
    CHECK(all_bytes(one + 1, 0, 3));
    CHECK(all_bytes(one + 4, 0xEE, 4));
    CHECK(memcmp(one, many, sizeof one) == 0);
  }
}

RULE(buffer_ids_are_not_used_twice, MANUAL, "BUFFER_ID is unique for each allocation of a process.") {
  unsigned long long last = 0;
  for (int i = 0; i < 20; i++) {
    CUdeviceptr m = new_memory(4096);
    unsigned long long id = address_of(m, CU_POINTER_ATTRIBUTE_BUFFER_ID);
    CHECK(id != 0);
    CHECK(id != last);
    last = id;
    OK(cuMemFree_v2(m));
  }
}

RULE(attributes_need_no_current_context, READING, "cuPointerGetAttributes answers without a current context.") {
  CUdeviceptr m = new_memory(64);
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  unsigned type = 0;
  void* values[] = {&type};
  OK(cuCtxSetCurrent(NULL));
  IS(cuPointerGetAttributes(1, names, values, m), CUDA_SUCCESS);
  SAME(type, CU_MEMORYTYPE_DEVICE);
}
