/* The functions of the CUDA driver that the programs call, from the library that CDEVICE_CUDA_DRIVER names. No header
 * of CUDA is needed. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kit {

/* A stream of the driver, which is also one of the CUDA runtime. */
using Stream = void*;

class Driver {
 public:
  /* Throws std::runtime_error if there is no driver or no GPU. */
  Driver();

  int version() const { return version_; }
  std::string name() const { return name_; }

  /* Makes the primary context of the first GPU current on this thread. */
  void use();
  Stream stream();
  void close(Stream stream);
  void wait(Stream stream, void* event);
  void synchronize(Stream stream);
  /* Reads memory of any kind that the driver knows, and host memory that it does not know. */
  std::vector<uint8_t> read(const void* address, size_t size, Stream stream);
  /* The bytes between an address and the end of its allocation; 0 where the driver knows no allocation. */
  size_t room(const void* address);

 private:
  template <typename F>
  void find(F& function, const char* name);
  void check(int code, const char* call) const;

  void* library_ = nullptr;
  int version_ = 0;
  std::string name_;
  void* context_ = nullptr;

  int (*init_)(unsigned) = nullptr;
  int (*get_version_)(int*) = nullptr;
  int (*count_)(int*) = nullptr;
  int (*get_name_)(char*, int, int) = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*create_)(Stream*, unsigned) = nullptr;
  int (*destroy_)(Stream) = nullptr;
  int (*wait_)(Stream, void*, unsigned) = nullptr;
  int (*synchronize_)(Stream) = nullptr;
  int (*copy_)(uintptr_t, uintptr_t, size_t, Stream) = nullptr;
  int (*attribute_)(void*, int, uintptr_t) = nullptr;
  int (*range_)(uintptr_t*, size_t*, uintptr_t) = nullptr;
};

}  // namespace kit
