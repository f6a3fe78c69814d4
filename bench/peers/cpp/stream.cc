// Batches through an exported stream, which the consumer reads.

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

class Stream : public Operation {
 public:
  using Operation::Operation;
  arrow::Status Run(int64_t n) override {
    ArrowDeviceArrayStream stream;
    ARROW_RETURN_NOT_OK(arrow::ExportDeviceRecordBatchReader(std::make_shared<Repeated>(data_, n), &stream));
    if (data_.consumer->read_device(data_.consumer, &stream) == n) return arrow::Status::OK();
    return arrow::Status::Invalid("the stream ended early");
  }
};

}  // namespace

std::unique_ptr<Operation> MakeStreamOperation(const std::string& name, Data data) {
  // A reader of arrow::RecordBatches, as for an export: there is nothing to wrap.
  if (name == "stream, read in C" || name == "wrap+stream, read in C") return std::make_unique<Stream>(std::move(data));
  return nullptr;
}

}  // namespace bench
