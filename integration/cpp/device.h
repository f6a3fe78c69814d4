// A device for Arrow C++ whose type is ARROW_DEVICE_EXT_DEV. Its memory is host
// memory, but Arrow C++ does not know that: it looks at it only by way of the
// memory manager, as it does with a GPU's.
#pragma once

#include <arrow/c/abi.h>
#include <arrow/device.h>
#include <arrow/record_batch.h>

#include <memory>

namespace peer {

// Makes Arrow C++ find the device when it imports. Once per process.
arrow::Status RegisterDevice();

// The memory of one of the devices; they differ only in their number.
std::shared_ptr<arrow::MemoryManager> DeviceMemory(int64_t id);

// The memory manager for a device type of the C interface: the CPU's, or ours.
arrow::Result<std::shared_ptr<arrow::MemoryManager>> MemoryOf(ArrowDeviceType type, int64_t id);

}  // namespace peer
