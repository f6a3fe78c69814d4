// The entry points of the Arrow C++ peer.

#include <arrow/config.h>

#include "operation.h"

namespace {

thread_local std::string last_error;

arrow::Status Open(const char* name, ArrowSchema* schema, ArrowDeviceArray* batch, bench_producer* producer,
                   bench_consumer* consumer, std::unique_ptr<bench::Operation>* out) {
  bench::Data data;
  ARROW_ASSIGN_OR_RAISE(data.schema, arrow::ImportSchema(schema));
  ARROW_ASSIGN_OR_RAISE(data.batch, arrow::ImportDeviceRecordBatch(batch, data.schema));
  data.producer = producer;
  data.consumer = consumer;
  *out = bench::MakeBatchOperation(name, data);
  if (*out == nullptr) *out = bench::MakeStreamOperation(name, data);
  return arrow::Status::OK();
}

}  // namespace

const char* peer_version() { return arrow::GetBuildInfo().version_string.c_str(); }

const char* peer_error() { return last_error.c_str(); }

void* peer_open(const char* name, ArrowSchema* schema, ArrowDeviceArray* batch, bench_producer* producer,
                bench_consumer* consumer) {
  std::unique_ptr<bench::Operation> operation;
  auto status = Open(name, schema, batch, producer, consumer, &operation);
  last_error = status.ok() ? "" : status.ToString();
  return operation.release();
}

int peer_run(void* operation, int64_t n) {
  auto status = static_cast<bench::Operation*>(operation)->Run(n);
  last_error = status.ok() ? "" : status.ToString();
  return status.ok() ? 0 : 1;
}

void peer_close(void* operation) { delete static_cast<bench::Operation*>(operation); }
