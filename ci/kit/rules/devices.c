/* Initialisation and devices. */
#define GROUP "devices"
#include "rules.h"

#include <sys/wait.h>
#include <unistd.h>

RULE(calls_before_init_are_refused, MANUAL, "Calls before cuInit are NOT_INITIALIZED.", .bare = true) {
  int count;
  CUdevice device;
  CUcontext context;
  CUdeviceptr memory;
  CUstream stream;
  IS(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuMemAlloc_v2(&memory, 64), CUDA_ERROR_NOT_INITIALIZED);
  IS(cuStreamCreate(&stream, 0), CUDA_ERROR_NOT_INITIALIZED);
}

RULE(the_version_is_known_before_init, MANUAL, "cuDriverGetVersion needs no cuInit; NULL is INVALID_VALUE.",
     .bare = true) {
  int version = 0;
  IS(cuDriverGetVersion(&version), CUDA_SUCCESS);
  CHECK(version >= 11000 && version % 10 == 0);
  IS(cuDriverGetVersion(NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(init_takes_no_flags_and_may_be_repeated, MANUAL, "cuInit of flags is INVALID_VALUE; a second cuInit succeeds.",
     .bare = true) {
  IS(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  IS(cuInit(0), CUDA_SUCCESS);
  IS(cuInit(0), CUDA_SUCCESS);
}

RULE(a_child_that_forked_has_no_driver, SEEN, "In a child that was forked after cuInit, calls are NOT_INITIALIZED.",
     .bare = true) {
  OK(cuInit(0));
  pid_t child = fork();
  if (child < 0) stop("no process can be made");
  if (child == 0) {
    int count;
    if (cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED) _exit(1);
    _exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  SAME(WEXITSTATUS(status), 0); /* 1: cuDeviceGetCount, 2: cuInit */
}

RULE(a_child_that_forked_cannot_use_the_context, SEEN,
     "In a child that was forked after a context was made, cuCtxSetCurrent and cuMemAlloc are NOT_INITIALIZED.",
     .alone = true) {
  CUcontext context = use(0);
  pid_t child = fork();
  if (child < 0) stop("no process can be made");
  if (child == 0) {
    CUdeviceptr m;
    if (cuCtxSetCurrent(context) != CUDA_ERROR_NOT_INITIALIZED) _exit(1);
    _exit(cuMemAlloc_v2(&m, 64) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 2);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  SAME(WEXITSTATUS(status), 0); /* 1: cuCtxSetCurrent, 2: cuMemAlloc */
  IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

RULE(devices_have_ordinals, MANUAL, "cuDeviceGet of an ordinal that is negative or too large is INVALID_DEVICE.") {
  int count = 0;
  CUdevice device;
  OK(cuDeviceGetCount(&count));
  IS(cuDeviceGet(&device, count - 1), CUDA_SUCCESS);
  IS(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
  IS(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  IS(cuDeviceGet(NULL, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuDeviceGetCount(NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(a_device_is_its_ordinal, SEEN, "The CUdevice of an ordinal is the ordinal.") {
  int count = 0;
  OK(cuDeviceGetCount(&count));
  for (int i = 0; i < count; i++) {
    CUdevice device = -1;
    OK(cuDeviceGet(&device, i));
    SAME(device, i);
  }
}

RULE(devices_have_a_bus_id, MANUAL, "cuDeviceGetByPCIBusId finds the device that cuDeviceGetPCIBusId names.") {
  CUdevice found = -1;
  char bus[32];
  OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
  IS(cuDeviceGetByPCIBusId(&found, bus), CUDA_SUCCESS);
  SAME(found, 0);
}

RULE(devices_differ, MANUAL, "UUID and bus of two devices differ.", .needs = TWO) {
  CUuuid uuid[2];
  char bus[2][32];
  for (int i = 0; i < 2; i++) {
    OK(cuDeviceGetUuid(&uuid[i], i));
    OK(cuDeviceGetPCIBusId(bus[i], sizeof bus[i], i));
  }
  CHECK(memcmp(&uuid[0], &uuid[1], sizeof uuid[0]) != 0);
  CHECK(strcmp(bus[0], bus[1]) != 0);
}

RULE(a_device_name_is_cut_to_its_buffer, READING,
     "cuDeviceGetName of a short buffer cuts the name, and ends it with 0.") {
  char name[256], little[5] = "xxxx";
  OK(cuDeviceGetName(name, sizeof name, 0));
  CHECK(strlen(name) > 3);
  IS(cuDeviceGetName(little, 4, 0), CUDA_SUCCESS);
  CHECK(little[3] == '\0' && strncmp(name, little, 3) == 0);
}

RULE(unknown_devices_and_attributes_are_refused, MANUAL,
     "An attribute that is unknown is INVALID_VALUE, one of an unknown device INVALID_DEVICE.") {
  int value;
  size_t total;
  CUuuid uuid;
  IS(cuDeviceGetUuid_v2(&uuid, 77), CUDA_ERROR_INVALID_DEVICE);
  IS(cuDeviceGetAttribute(&value, 100000, 0), CUDA_ERROR_INVALID_VALUE);
  IS(cuDeviceGetAttribute(&value, ATTRIBUTE_UNIFIED_ADDRESSING, 77), CUDA_ERROR_INVALID_DEVICE);
  IS(cuDeviceTotalMem_v2(&total, 77), CUDA_ERROR_INVALID_DEVICE);
}

RULE(devices_have_a_capability, MANUAL, "CUDA 12 needs a device of compute capability 5.0 or more.") {
  CHECK(attribute(ATTRIBUTE_CAPABILITY_MAJOR, 0) >= 5);
}

RULE(addresses_are_unified, MANUAL, "UNIFIED_ADDRESSING is 1 on 64-bit Linux.") {
  SAME(attribute(ATTRIBUTE_UNIFIED_ADDRESSING, 0), 1);
}

RULE(errors_have_names, MANUAL, "Names and texts of errors; those of an unknown error are INVALID_VALUE and NULL.",
     .bare = true) {
  const char* s = NULL;
  OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &s));
  CHECK(strcmp(s, "CUDA_ERROR_ILLEGAL_ADDRESS") == 0);
  OK(cuGetErrorName(CUDA_SUCCESS, &s));
  CHECK(strcmp(s, "CUDA_SUCCESS") == 0);
  OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &s));
  CHECK(strcmp(s, "out of memory") == 0);
  s = "";
  IS(cuGetErrorName((CUresult)12345, &s), CUDA_ERROR_INVALID_VALUE);
  CHECK(s == NULL);
  s = "";
  IS(cuGetErrorString((CUresult)12345, &s), CUDA_ERROR_INVALID_VALUE);
  CHECK(s == NULL);
}

RULE(every_error_has_its_name_and_text, MANUAL,
     "Each error that the simulator knows has the name and the text of the driver.", .bare = true) {
  static const struct {
    const char *name, *text;
    int value;
  } errors[] = {
#define ERROR(name, value, text) {#name, text, value},
#include "../../../cudasim/src/errors.h"
#undef ERROR
  };
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
    const char *name = NULL, *text = NULL;
    /* A driver that is older than an error does not know it. */
    if (cuGetErrorName((CUresult)errors[i].value, &name) != CUDA_SUCCESS || name == NULL) continue;
    if (strcmp(name, errors[i].name) != 0) differs("%d is %s, not %s", errors[i].value, name, errors[i].name);
    if (cuGetErrorString((CUresult)errors[i].value, &text) != CUDA_SUCCESS || text == NULL) continue;
    if (strcmp(text, errors[i].text) != 0) differs("%s is \"%s\", not \"%s\"", name, text, errors[i].text);
  }
}

RULE(the_loading_mode_needs_init_and_a_place, MANUAL,
     "cuModuleGetLoadingMode is NOT_INITIALIZED before cuInit, and INVALID_VALUE of NULL.", .bare = true,
     .driver = "crash in one of the two calls") {
  int mode = 0;
  IS(cuModuleGetLoadingMode(&mode), CUDA_ERROR_NOT_INITIALIZED);
  OK(cuInit(0));
  IS(cuModuleGetLoadingMode(NULL), CUDA_ERROR_INVALID_VALUE);
}

RULE(modules_are_loaded_lazily, MANUAL, "cuModuleGetLoadingMode is LAZY since CUDA 12.2.", .bare = true) {
  int mode = 0, version = 0;
  unsetenv("CUDA_MODULE_LOADING");
  OK(cuDriverGetVersion(&version));
  OK(cuInit(0));
  OK(cuModuleGetLoadingMode(&mode));
  SAME(mode, version >= 12020 ? CU_MODULE_LAZY_LOADING : CU_MODULE_EAGER_LOADING);
}

RULE(the_environment_selects_how_modules_are_loaded, MANUAL,
     "With CUDA_MODULE_LOADING=EAGER, cuModuleGetLoadingMode is EAGER.", .bare = true) {
  int mode = 0;
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  OK(cuInit(0));
  OK(cuModuleGetLoadingMode(&mode));
  SAME(mode, CU_MODULE_EAGER_LOADING);
}
