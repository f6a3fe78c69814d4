// A reader whose batches come from another reader, are put on a device, and end
// in a failure if a test wants that.
#pragma once

#include <arrow/c/abi.h>
#include <arrow/record_batch.h>

#include <memory>

#include "peer.h"

namespace peer {

// Takes the stream, even if it fails.
arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> MakeSource(ArrowArrayStream* stream, ArrowDeviceType type,
                                                                    int64_t device_id, const Failure& failure);

}  // namespace peer
