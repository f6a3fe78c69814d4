/* Queries about an address. */
#include "rules.h"

static int int_of(CUdeviceptr p, int attribute) {
  int value = -77;
  OK(cuPointerGetAttribute(&value, attribute, p));
  return value;
}

static bool is_managed(CUdeviceptr p) {
  unsigned value = 77;
  OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
  return value;
}

static unsigned long long address_of(CUdeviceptr p, int attribute) {
  unsigned long long value = 0;
  OK(cuPointerGetAttribute(&value, attribute, p));
  return value;
}

RULE(attributes_of_device_memory, "devices=2") {
  use(0);
  CUcontext context = use(1), of = NULL;
  CUdeviceptr m = new_memory(1000);
  unsigned long long host;
  SAME(int_of(m, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
  SAME(int_of(m + 999, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 1);
  CHECK(!is_managed(m));
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, m));
  CHECK(of == context);
  CHECK(address_of(m + 7, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == m + 7);
  CHECK(address_of(m + 7, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) == m);
  SAME(address_of(m + 7, CU_POINTER_ATTRIBUTE_RANGE_SIZE), 1000);
  IS(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, m), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(m));
  IS(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, m), CUDA_ERROR_INVALID_VALUE);
}

RULE(attributes_of_page_locked_memory, "") {
  use(0);
  CUdeviceptr p = (CUdeviceptr)(uintptr_t)new_pinned(1000);
  SAME(int_of(p, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_HOST);
  SAME(int_of(p, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
  CHECK(!is_managed(p));
  CHECK(address_of(p + 7, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == p + 7);
  CHECK(address_of(p + 7, CU_POINTER_ATTRIBUTE_HOST_POINTER) == p + 7);
  OK(cuMemFreeHost((void *)(uintptr_t)p));
}

RULE(attributes_of_registered_memory, "") {
  use(0);
  static char bytes[8192];
  CUdeviceptr p = (CUdeviceptr)(uintptr_t)bytes;
  int type;
  OK(cuMemHostRegister_v2(bytes, sizeof bytes, 0));
  SAME(int_of(p + 5000, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_HOST);
  CHECK(address_of(p + 7, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == p + 7);
  OK(cuMemHostUnregister(bytes));
  IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p), CUDA_ERROR_INVALID_VALUE);
}

RULE(attributes_of_managed_memory, "") {
  use(0);
  CUdeviceptr m;
  OK(cuMemAllocManaged(&m, 1000, CU_MEM_ATTACH_GLOBAL));
  CHECK(is_managed(m + 999));
  CHECK(address_of(m + 7, CU_POINTER_ATTRIBUTE_DEVICE_POINTER) == m + 7);
  CHECK(address_of(m + 7, CU_POINTER_ATTRIBUTE_HOST_POINTER) == m + 7);
  OK(cuMemFree_v2(m));
}

RULE(attributes_of_memory_of_a_pool, "") {
  use(0);
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
  OK(cuStreamSynchronize(NULL));
}

RULE(unknown_addresses_have_no_attributes, "") {
  use(0);
  int value;
  char byte;
  IS(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&byte),
     CUDA_ERROR_INVALID_VALUE);
  IS(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr m = new_memory(64);
  IS(cuPointerGetAttribute(&value, 1000, m), CUDA_ERROR_INVALID_VALUE);
  IS(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, m), CUDA_ERROR_INVALID_VALUE);
  IS(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, m + 64), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(m));
}

struct asked {
  CUcontext context;
  unsigned type;
  CUdeviceptr device, start;
  void *host;
  unsigned managed;
  int ordinal;
};

static struct asked ask(CUdeviceptr p) {
  struct asked a;
  memset(&a, 0x5A, sizeof a);
  a.managed = 0;
  int attributes[] = {
      CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,  CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
  };
  void *values[] = {&a.context, &a.type, &a.device, &a.start, &a.host, &a.managed, &a.ordinal};
  OK(cuPointerGetAttributes(7, attributes, values, p));
  return a;
}

RULE(many_attributes_are_had_at_once, "") {
  CUcontext context = use(0);
  CUdeviceptr m = new_memory(1000);
  struct asked a = ask(m + 5);
  CHECK(a.context == context && a.type == CU_MEMORYTYPE_DEVICE && a.device == m + 5 && a.start == m);
  CHECK(a.host == NULL && !a.managed && a.ordinal == 0);
  OK(cuMemFree_v2(m));
}

RULE(many_attributes_of_unknown_addresses_are_zero_and_no_error, "") {
  use(0);
  char byte;
  struct asked a = ask((CUdeviceptr)(uintptr_t)&byte);
  CHECK(a.context == NULL && a.type == 0 && a.device == 0 && a.host == NULL && !a.managed);
  a = ask(0);
  CHECK(a.context == NULL && a.type == 0);
}

/* "a boolean": programs make room for an int, which the driver fills. */
RULE(boolean_attributes_are_four_bytes, "") {
  use(0);
  CUdeviceptr m;
  OK(cuMemAllocManaged(&m, 1000, CU_MEM_ATTACH_GLOBAL));
  int booleans[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MAPPED, 10, 15};
  for (int i = 0; i < 4; i++) {
    unsigned char one[8], many[8];
    void *values[] = {many};
    memset(one, 0xEE, sizeof one);
    memset(many, 0xEE, sizeof many);
    OK(cuPointerGetAttribute(one, booleans[i], m));
    OK(cuPointerGetAttributes(1, &booleans[i], values, m));
    SAME(one[0], i < 2);
    CHECK(all_bytes(one + 1, 0, 3) && all_bytes(one + 4, 0xEE, 4));
    CHECK(memcmp(one, many, sizeof one) == 0);
  }
  OK(cuMemFree_v2(m));
}

RULE(buffer_ids_are_not_used_twice, "") {
  use(0);
  unsigned long long last = 0;
  for (int i = 0; i < 20; i++) {
    CUdeviceptr m = new_memory(4096);
    unsigned long long id = address_of(m, CU_POINTER_ATTRIBUTE_BUFFER_ID);
    CHECK(id != last && id != 0);
    last = id;
    OK(cuMemFree_v2(m));
  }
}
