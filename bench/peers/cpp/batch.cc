// Operations on one batch or schema.

#include <arrow/array.h>

#include <vector>

#include "operation.h"

namespace bench {
namespace {

class Export : public Operation {
 public:
  using Operation::Operation;
  arrow::Status Run(int64_t n) override {
    for (int64_t i = 0; i < n; i++) {
      ArrowDeviceArray out;
      ARROW_RETURN_NOT_OK(arrow::ExportDeviceRecordBatch(*data_.batch, nullptr, &out, nullptr));
      data_.consumer->take(data_.consumer, &out.array);
    }
    return arrow::Status::OK();
  }
};

// Exports that stay live until the end.
class Live : public Operation {
 public:
  using Operation::Operation;
  ~Live() override {
    for (auto& array : live_) array.array.release(&array.array);
  }
  arrow::Status Run(int64_t n) override {
    live_.reserve(n);
    for (int64_t i = 0; i < n; i++) {
      live_.emplace_back();
      ARROW_RETURN_NOT_OK(arrow::ExportDeviceRecordBatch(*data_.batch, nullptr, &live_.back(), nullptr));
    }
    return arrow::Status::OK();
  }

 private:
  std::vector<ArrowDeviceArray> live_;
};

class Import : public Operation {
 public:
  // A batch makes an arrow::Array when it is asked for the column: of all, or of one.
  Import(Data data, int columns) : Operation(std::move(data)), columns_(columns) {}
  arrow::Status Run(int64_t n) override {
    for (int64_t i = 0; i < n; i++) {
      ArrowDeviceArray in;
      data_.producer->give(data_.producer, &in);
      ARROW_ASSIGN_OR_RAISE(auto batch, arrow::ImportDeviceRecordBatch(&in, data_.schema));
      for (int column = 0; column < columns_; column++) {
        if (batch->column(column)->length() != batch->num_rows()) return arrow::Status::Invalid("no column");
      }
    }
    return arrow::Status::OK();
  }

 private:
  int columns_;
};

// The values of one column are summed.
class ImportValues : public Operation {
 public:
  using Operation::Operation;
  arrow::Status Run(int64_t n) override {
    for (int64_t i = 0; i < n; i++) {
      ArrowDeviceArray in;
      data_.producer->give(data_.producer, &in);
      ARROW_ASSIGN_OR_RAISE(auto batch, arrow::ImportDeviceRecordBatch(&in, data_.schema));
      const auto& data = *batch->column_data(0);
      const int64_t* values = data.GetValues<int64_t>(1);
      for (int64_t row = 0; row < data.length; row++) sum_ += values[row];
    }
    return arrow::Status::OK();
  }

 private:
  int64_t sum_ = 0;
};

class Schema : public Operation {
 public:
  using Operation::Operation;
  arrow::Status Run(int64_t n) override {
    for (int64_t i = 0; i < n; i++) {
      ArrowSchema schema;
      ARROW_RETURN_NOT_OK(arrow::ExportSchema(*data_.schema, &schema));
      ARROW_RETURN_NOT_OK(arrow::ImportSchema(&schema).status());
    }
    return arrow::Status::OK();
  }
};

class Validate : public Operation {
 public:
  using Operation::Operation;
  arrow::Status Run(int64_t n) override {
    for (int64_t i = 0; i < n; i++) ARROW_RETURN_NOT_OK(data_.batch->ValidateFull());
    return arrow::Status::OK();
  }
};

}  // namespace

std::unique_ptr<Operation> MakeBatchOperation(const std::string& name, Data data) {
  // An export begins with an arrow::RecordBatch each time: there is nothing to wrap.
  if (name == "export, released in C" || name == "wrap+export, released in C")
    return std::make_unique<Export>(std::move(data));
  if (name == "live exports") return std::make_unique<Live>(std::move(data));
  const int columns = data.schema->num_fields();
  if (name == "import+release") return std::make_unique<Import>(std::move(data), 0);
  if (name == "import+view, one column read") return std::make_unique<Import>(std::move(data), 1);
  if (name == "import+view+release") return std::make_unique<Import>(std::move(data), columns);
  if (name == "import+values, one column read") return std::make_unique<ImportValues>(std::move(data));
  // Arrow C++ keeps nothing of a schema that it saw before.
  if (name == "schema, first time" || name == "schema again") return std::make_unique<Schema>(std::move(data));
  if (name == "full validation") return std::make_unique<Validate>(std::move(data));
  return nullptr;
}

}  // namespace bench
