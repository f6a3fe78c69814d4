#include "source.h"

#include <arrow/c/bridge.h>

#include "device.h"

namespace peer {
namespace {

using arrow::RecordBatch;
using arrow::RecordBatchReader;
using arrow::Result;
using arrow::Status;

class Source : public RecordBatchReader {
 public:
  Source(std::shared_ptr<RecordBatchReader> from, std::shared_ptr<arrow::MemoryManager> memory, Status failure,
         int64_t fails_after)
      : from_(std::move(from)), memory_(std::move(memory)), failure_(std::move(failure)), left_(fails_after) {}

  std::shared_ptr<arrow::Schema> schema() const override { return from_->schema(); }

  arrow::DeviceAllocationType device_type() const override { return memory_->device()->device_type(); }

  Status ReadNext(std::shared_ptr<RecordBatch>* batch) override {
    if (left_ == 0) return failure_;
    if (left_ > 0) --left_;
    ARROW_RETURN_NOT_OK(from_->ReadNext(batch));
    if (*batch == nullptr || memory_->is_cpu()) return Status::OK();
    return (*batch)->CopyTo(memory_).Value(batch);
  }

  Status Close() override {
    ++counters.sources_closed;
    return from_->Close();
  }

 private:
  Counted counted_{alive.sources};
  std::shared_ptr<RecordBatchReader> from_;
  std::shared_ptr<arrow::MemoryManager> memory_;
  Status failure_;
  int64_t left_;  // batches until the failure; below 0: there is none
};

}  // namespace

Result<std::shared_ptr<RecordBatchReader>> MakeSource(ArrowArrayStream* stream, ArrowDeviceType type, int64_t device_id,
                                                      const Failure& failure) {
  ARROW_ASSIGN_OR_RAISE(auto from, arrow::ImportRecordBatchReader(stream));
  ARROW_ASSIGN_OR_RAISE(auto memory, MemoryOf(type, device_id));
  Status status;
  if (failure.after >= 0) status = Status(static_cast<arrow::StatusCode>(failure.code), failure.message);
  return std::make_shared<Source>(std::move(from), std::move(memory), std::move(status), failure.after);
}

}  // namespace peer
