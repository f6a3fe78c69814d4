// Device streams: Arrow C++ as the producer, and as the consumer.

#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>

#include "device.h"
#include "source.h"

namespace {

using arrow::Status;

// A consumer's reader, whose batches are handed on as memory of the CPU.
struct Reader {
  peer::Counted counted{peer::alive.readers};
  std::shared_ptr<arrow::RecordBatchReader> from;
};

Status Export(ArrowArrayStream* source, ArrowDeviceType type, int64_t device_id, const peer::Failure& failure,
              ArrowDeviceArrayStream* out) {
  ARROW_ASSIGN_OR_RAISE(auto reader, peer::MakeSource(source, type, device_id, failure));
  return arrow::ExportDeviceRecordBatchReader(std::move(reader), out);
}

Status Open(ArrowDeviceArrayStream* stream, Reader** out) {
  ARROW_ASSIGN_OR_RAISE(auto from, arrow::ImportDeviceRecordBatchReader(stream));
  *out = new Reader{.from = std::move(from)};
  return Status::OK();
}

Status Next(Reader* reader, ArrowArray* out) {
  std::shared_ptr<arrow::RecordBatch> batch;
  ARROW_RETURN_NOT_OK(reader->from->ReadNext(&batch));
  if (batch == nullptr) {
    out->release = nullptr;
    return Status::OK();
  }
  ARROW_ASSIGN_OR_RAISE(batch, batch->ViewOrCopyTo(arrow::default_cpu_memory_manager()));
  return arrow::ExportRecordBatch(*batch, out);
}

}  // namespace

extern "C" {

// Exports a plain stream, which it takes, as a device stream.
char* cpp_export_stream(ArrowArrayStream* source, int32_t device_type, int64_t device_id, int64_t fails_after,
                        int32_t status, const char* message, ArrowDeviceArrayStream* out) {
  return peer::Answer(Export(source, device_type, device_id, {fails_after, status, message}, out));
}

// Imports a device stream. The reader ends with cpp_reader_close.
char* cpp_reader_open(ArrowDeviceArrayStream* stream, Reader** out) { return peer::Answer(Open(stream, out)); }

char* cpp_reader_schema(Reader* reader, ArrowSchema* out) {
  return peer::Answer(arrow::ExportSchema(*reader->from->schema(), out));
}

int32_t cpp_reader_device_type(Reader* reader) { return static_cast<int32_t>(reader->from->device_type()); }

// The next batch, with a view of its memory that the CPU can use; at the end the
// array is released.
char* cpp_reader_next(Reader* reader, ArrowArray* out) { return peer::Answer(Next(reader, out)); }

char* cpp_reader_close(Reader* reader) {
  auto status = reader->from->Close();
  delete reader;
  return peer::Answer(status);
}
}
