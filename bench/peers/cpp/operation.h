// An operation of Arrow C++, and the data that each begins with.
#pragma once

#include <arrow/c/abi.h>
#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/status.h>
#include <arrow/type.h>

#include <memory>
#include <string>

#include "../peer.h"

namespace bench {

struct Data {
  std::shared_ptr<arrow::Schema> schema;
  std::shared_ptr<arrow::RecordBatch> batch;
  bench_producer* producer;
  bench_consumer* consumer;
};

class Operation {
 public:
  explicit Operation(Data data) : data_(std::move(data)) {}
  virtual ~Operation() = default;
  virtual arrow::Status Run(int64_t n) = 0;

 protected:
  Data data_;
};

// Each returns nullptr if the name is not one of its operations.
std::unique_ptr<Operation> MakeBatchOperation(const std::string& name, Data data);
std::unique_ptr<Operation> MakeStreamOperation(const std::string& name, Data data);

}  // namespace bench
