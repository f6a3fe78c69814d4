// Record batches on the device.

#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>

#include "device.h"
#include "peer.h"

namespace {

arrow::Status CopyToDevice(ArrowArray* array, ArrowSchema* schema, int64_t device_id, ArrowDeviceArray* out,
                           ArrowSchema* out_schema) {
  ARROW_ASSIGN_OR_RAISE(auto batch, arrow::ImportRecordBatch(array, schema));
  ARROW_ASSIGN_OR_RAISE(batch, batch->CopyTo(peer::DeviceMemory(device_id)));
  return arrow::ExportDeviceRecordBatch(*batch, nullptr, out, out_schema);
}

}  // namespace

extern "C" {

char* cpp_register_device() { return peer::Answer(peer::RegisterDevice()); }

// Takes a batch, and exports a copy of it that is on a device.
char* cpp_copy_to_device(ArrowArray* array, ArrowSchema* schema, int64_t device_id, ArrowDeviceArray* out,
                         ArrowSchema* out_schema) {
  return peer::Answer(CopyToDevice(array, schema, device_id, out, out_schema));
}
}
