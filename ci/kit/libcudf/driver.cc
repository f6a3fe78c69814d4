#include "driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace kit {

namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr int kMemoryType = 2;        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE

}  // namespace

template <typename F>
void Driver::find(F& function, const char* name) {
  function = reinterpret_cast<F>(dlsym(library_, name));
  if (!function) throw std::runtime_error(std::string("the driver has no ") + name);
}

void Driver::check(int code, const char* call) const {
  if (code) throw std::runtime_error(std::string(call) + ": CUDA error " + std::to_string(code));
}

Driver::Driver() {
  const char* path = std::getenv("CDEVICE_CUDA_DRIVER");
  if (!path || !*path) path = "libcuda.so.1";
  library_ = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!library_) throw std::runtime_error(std::string("no driver: ") + dlerror());
  find(init_, "cuInit");
  find(get_version_, "cuDriverGetVersion");
  find(count_, "cuDeviceGetCount");
  find(get_name_, "cuDeviceGetName");
  find(retain_, "cuDevicePrimaryCtxRetain");
  find(set_current_, "cuCtxSetCurrent");
  find(create_, "cuStreamCreate");
  find(destroy_, "cuStreamDestroy_v2");
  find(wait_, "cuStreamWaitEvent");
  find(synchronize_, "cuStreamSynchronize");
  find(copy_, "cuMemcpyAsync");
  find(attribute_, "cuPointerGetAttribute");
  find(range_, "cuMemGetAddressRange_v2");
  int count = 0;
  check(init_(0), "no GPU: cuInit");
  check(get_version_(&version_), "cuDriverGetVersion");
  check(count_(&count), "cuDeviceGetCount");
  if (!count) throw std::runtime_error("no GPU: the driver has none");
  char name[256] = "";
  check(get_name_(name, sizeof name - 1, 0), "cuDeviceGetName");
  name_ = name;
  check(retain_(&context_, 0), "cuDevicePrimaryCtxRetain");
}

void Driver::use() { check(set_current_(context_), "cuCtxSetCurrent"); }

Stream Driver::stream() {
  Stream stream = nullptr;
  check(create_(&stream, kNonBlocking), "cuStreamCreate");
  return stream;
}

void Driver::close(Stream stream) { check(destroy_(stream), "cuStreamDestroy"); }

void Driver::wait(Stream stream, void* event) { check(wait_(stream, event, 0), "cuStreamWaitEvent"); }

void Driver::synchronize(Stream stream) { check(synchronize_(stream), "cuStreamSynchronize"); }

std::vector<uint8_t> Driver::read(const void* address, size_t size, Stream stream) {
  std::vector<uint8_t> bytes(size);
  if (!size) return bytes;
  unsigned type = 0;
  if (attribute_(&type, kMemoryType, reinterpret_cast<uintptr_t>(address))) {  // not the driver's memory
    std::memcpy(bytes.data(), address, size);
    return bytes;
  }
  check(copy_(reinterpret_cast<uintptr_t>(bytes.data()), reinterpret_cast<uintptr_t>(address), size, stream),
        "cuMemcpyAsync");
  synchronize(stream);
  return bytes;
}

size_t Driver::room(const void* address) {
  uintptr_t base = 0;
  size_t size = 0;
  if (range_(&base, &size, reinterpret_cast<uintptr_t>(address))) return 0;
  return base + size - reinterpret_cast<uintptr_t>(address);
}

}  // namespace kit
