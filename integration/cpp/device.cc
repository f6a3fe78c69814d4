#include "device.h"

#include <arrow/buffer.h>
#include <arrow/io/memory.h>

#include <cstdlib>
#include <cstring>

#include "peer.h"

namespace peer {
namespace {

using arrow::Buffer;
using arrow::MemoryManager;
using arrow::Result;
using arrow::Status;

class ExtDevice : public arrow::Device {
 public:
  explicit ExtDevice(int64_t id) : id_(id) {}
  const char* type_name() const override { return "peer::ExtDevice"; }
  std::string ToString() const override { return "ext_dev:" + std::to_string(id_); }
  bool Equals(const Device& other) const override {
    return other.device_type() == device_type() && other.device_id() == id_;
  }
  int64_t device_id() const override { return id_; }
  arrow::DeviceAllocationType device_type() const override { return arrow::DeviceAllocationType::kEXT_DEV; }
  std::shared_ptr<MemoryManager> default_memory_manager() override { return DeviceMemory(id_); }

 private:
  int64_t id_;
};

// A block that was allocated on the device.
class DeviceBuffer : public Buffer {
 public:
  DeviceBuffer(void* block, int64_t size, std::shared_ptr<MemoryManager> mm)
      : Buffer(reinterpret_cast<uintptr_t>(block), size, std::move(mm)), block_(block) {
    is_mutable_ = true;
    alive.device_bytes += size;
  }
  ~DeviceBuffer() override {
    alive.device_bytes -= size();
    free(block_);
  }

 private:
  void* block_;
};

void* At(const Buffer& buffer) { return reinterpret_cast<void*>(buffer.address()); }

class ExtMemoryManager : public MemoryManager {
 public:
  explicit ExtMemoryManager(int64_t id) : MemoryManager(std::make_shared<ExtDevice>(id)) {}

  Result<std::unique_ptr<Buffer>> AllocateBuffer(int64_t size) override {
    // At least a byte: a buffer without an address would be none.
    void* block = malloc(size > 0 ? size : 1);
    if (block == nullptr) return Status::OutOfMemory("ext_dev: ", size, " bytes");
    return std::make_unique<DeviceBuffer>(block, size, shared_from_this());
  }

  // Arrow C++ reads the parts that an import needs (the offsets of strings) this way.
  Result<std::shared_ptr<arrow::io::RandomAccessFile>> GetBufferReader(std::shared_ptr<Buffer> buffer) override {
    ARROW_ASSIGN_OR_RAISE(auto view, ViewBufferTo(buffer, arrow::default_cpu_memory_manager()));
    return std::make_shared<arrow::io::BufferReader>(view);
  }

  Result<std::shared_ptr<arrow::io::OutputStream>> GetBufferWriter(std::shared_ptr<Buffer>) override {
    return Status::NotImplemented("ext_dev: writing to a buffer");
  }

 protected:
  Result<std::shared_ptr<Buffer>> CopyBufferFrom(const std::shared_ptr<Buffer>& buffer,
                                                 const std::shared_ptr<MemoryManager>& from) override {
    return CopyNonOwnedFrom(*buffer, from);
  }

  Result<std::shared_ptr<Buffer>> CopyBufferTo(const std::shared_ptr<Buffer>& buffer,
                                               const std::shared_ptr<MemoryManager>& to) override {
    return CopyNonOwnedTo(*buffer, to);
  }

  Result<std::unique_ptr<Buffer>> CopyNonOwnedFrom(const Buffer& buffer,
                                                   const std::shared_ptr<MemoryManager>& from) override {
    if (!from->is_cpu()) return nullptr;
    ARROW_ASSIGN_OR_RAISE(auto copy, AllocateBuffer(buffer.size()));
    if (buffer.size() > 0) memcpy(At(*copy), At(buffer), buffer.size());
    return copy;
  }

  Result<std::unique_ptr<Buffer>> CopyNonOwnedTo(const Buffer& buffer,
                                                 const std::shared_ptr<MemoryManager>& to) override {
    if (!to->is_cpu()) return nullptr;
    ARROW_ASSIGN_OR_RAISE(auto copy, to->AllocateBuffer(buffer.size()));
    if (buffer.size() > 0) memcpy(At(*copy), At(buffer), buffer.size());
    return copy;
  }

  // The CPU's view of the same bytes, so that tests can compare addresses.
  Result<std::shared_ptr<Buffer>> ViewBufferTo(const std::shared_ptr<Buffer>& buffer,
                                               const std::shared_ptr<MemoryManager>& to) override {
    if (!to->is_cpu()) return nullptr;
    return std::make_shared<Buffer>(buffer->address(), buffer->size(), to, buffer);
  }
};

}  // namespace

std::shared_ptr<MemoryManager> DeviceMemory(int64_t id) { return std::make_shared<ExtMemoryManager>(id); }

Status RegisterDevice() {
  return arrow::RegisterDeviceMapper(arrow::DeviceAllocationType::kEXT_DEV,
                                     [](int64_t id) -> Result<std::shared_ptr<MemoryManager>> {
                                       ++counters.device_mappings;
                                       return DeviceMemory(id);
                                     });
}

Result<std::shared_ptr<MemoryManager>> MemoryOf(ArrowDeviceType type, int64_t id) {
  if (type == ARROW_DEVICE_CPU) return arrow::default_cpu_memory_manager();
  if (type == ARROW_DEVICE_EXT_DEV) return DeviceMemory(id);
  return Status::Invalid("no memory of device type ", type, " here");
}

}  // namespace peer
