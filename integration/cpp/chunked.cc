// Chunked arrays, which are device streams of arrays.

#include <arrow/c/bridge.h>
#include <arrow/chunked_array.h>

#include "peer.h"

namespace {

using arrow::Status;

Status Export(ArrowArrayStream* chunks, ArrowDeviceArrayStream* out) {
  ARROW_ASSIGN_OR_RAISE(auto chunked, arrow::ImportChunkedArray(chunks));
  return arrow::ExportDeviceChunkedArray(std::move(chunked), arrow::DeviceAllocationType::kCPU, out);
}

Status Import(ArrowDeviceArrayStream* stream, ArrowArrayStream* out) {
  ARROW_ASSIGN_OR_RAISE(auto chunked, arrow::ImportDeviceChunkedArray(stream));
  return arrow::ExportChunkedArray(std::move(chunked), out);
}

}  // namespace

extern "C" {

// Exports a plain stream of arrays, which it takes, as a device stream.
char* cpp_export_chunked(ArrowArrayStream* chunks, ArrowDeviceArrayStream* out) {
  return peer::Answer(Export(chunks, out));
}

// Reads a device stream of arrays, which it takes, to its end.
char* cpp_import_chunked(ArrowDeviceArrayStream* stream, ArrowArrayStream* out) {
  return peer::Answer(Import(stream, out));
}
}
