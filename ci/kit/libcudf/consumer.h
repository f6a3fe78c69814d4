/* A consumer of arrays: libcudf (cudf.cc), or the one that stands in for it (standin.cc). */
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arrow_device.h"
#include "driver.h"

namespace kit {

/* Exported structs, which are released once, by the last that has them. */
struct Structs {
  ArrowDeviceArray array{};
  ArrowSchema schema{};

  Structs() = default;
  Structs(const Structs&) = delete;
  Structs& operator=(const Structs&) = delete;
  Structs(Structs&& other) noexcept : array(other.array), schema(other.schema) {
    other.array.array.release = nullptr;
    other.schema.release = nullptr;
  }
  ~Structs() {
    if (array.array.release) array.array.release(&array.array);
    if (schema.release) schema.release(&schema);
  }
};

/* Imported is an array that a consumer has. */
class Imported {
 public:
  virtual ~Imported() = default;
  /* What is wrong with the array as the consumer sees it. */
  virtual std::vector<std::string> faults() = 0;
  /* What is wrong with the structure alone, and the type that the consumer takes it for: no work on the device. */
  virtual std::vector<std::string> structure(std::string& type) = 0;
  /* The array in host memory, and on the device, as the consumer exports it. */
  virtual void to_host(Structs& out) = 0;
  virtual void to_device(Structs& out) = 0;
};

class Consumer {
 public:
  virtual ~Consumer() = default;
  /* Imports a table or a column, as work on a stream, without waiting for it. */
  virtual std::unique_ptr<Imported> import(Structs&& structs, bool table, Stream stream) = 0;
};

/* The consumer that stands in. */
std::unique_ptr<Consumer> make_standin(Driver& driver);

}  // namespace kit

/* The entry point of the library that has libcudf's consumers: with views, or with owning wrappers. */
using kit_make_consumer = kit::Consumer* (*)(const char* kind);
