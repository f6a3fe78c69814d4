// Batches through an exported and an imported stream.

#include "operation.h"

namespace bench {
namespace {

// Gives the same batch so many times.
class Repeated : public arrow::RecordBatchReader {
 public:
  Repeated(const Data& data, int64_t n) : schema_(data.schema), batch_(data.batch), left_(n) {}
  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }
  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* out) override {
    *out = left_ > 0 ? batch_ : nullptr;
    left_--;
    return arrow::Status::OK();
  }

 private:
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  int64_t left_;
};

arrow::Status Drain(arrow::RecordBatchReader* reader, int64_t n) {
  std::shared_ptr<arrow::RecordBatch> batch;
  for (;;) {
    ARROW_RETURN_NOT_OK(reader->ReadNext(&batch));
    if (batch == nullptr) break;
    n--;
  }
  return n == 0 ? reader->Close() : arrow::Status::Invalid("the stream ended early");
}

class DeviceStream : public Operation {
 public:
  using Operation::Operation;
  arrow::Status Run(int64_t n) override {
    ArrowDeviceArrayStream stream;
    ARROW_RETURN_NOT_OK(arrow::ExportDeviceRecordBatchReader(std::make_shared<Repeated>(data_, n), &stream));
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ImportDeviceRecordBatchReader(&stream));
    return Drain(reader.get(), n);
  }
};

class PlainStream : public Operation {
 public:
  using Operation::Operation;
  arrow::Status Run(int64_t n) override {
    ArrowArrayStream stream;
    ARROW_RETURN_NOT_OK(arrow::ExportRecordBatchReader(std::make_shared<Repeated>(data_, n), &stream));
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ImportRecordBatchReader(&stream));
    return Drain(reader.get(), n);
  }
};

}  // namespace

std::unique_ptr<Operation> MakeStreamOperation(const std::string& name, Data data) {
  if (name == "stream" || name == "wrap+stream") return std::make_unique<DeviceStream>(std::move(data));
  if (name == "plain stream" || name == "wrap+plain stream") return std::make_unique<PlainStream>(std::move(data));
  return nullptr;
}

}  // namespace bench
