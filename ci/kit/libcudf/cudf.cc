/* The consumers of libcudf, for consumers.py: "view" imports with from_arrow_device and from_arrow_device_column,
 * "owning" with arrow_table and arrow_column, which pylibcudf uses. */
#include <variant>  // which headers of libcudf use without including it

#include <cudf/copying.hpp>
#include <cudf/interop.hpp>
#include <cudf/null_mask.hpp>
#include <cudf/table/table_view.hpp>
#include <cudf/utilities/type_dispatcher.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrow_device.h"

namespace {

/* Exported structs, which are released once, by the last that has them. */
struct Structs {
  ArrowDeviceArray array{};
  ArrowSchema schema{};

  Structs() = default;
  Structs(const Structs&) = delete;
  Structs& operator=(const Structs&) = delete;
  /* Moves the contents out. */
  Structs(ArrowDeviceArray& a, ArrowSchema& s) : array(a), schema(s) {
    a.array.release = nullptr;
    s.release = nullptr;
  }
  Structs(Structs&& other) noexcept : Structs(other.array, other.schema) {}
  ~Structs() {
    if (array.array.release) array.array.release(&array.array);
    if (schema.release) schema.release(&schema);
  }
};

/* Imported is an array that libcudf has. */
class Imported {
 public:
  virtual ~Imported() = default;
  /* What is wrong with the array as libcudf sees it. */
  virtual std::vector<std::string> faults() = 0;
  /* What is wrong with the structure alone, and the type that libcudf takes it for: no work on the device. */
  virtual std::vector<std::string> structure(std::string& type) = 0;
  /* The array in host memory, and on the device, as libcudf exports it. */
  virtual void to_host(ArrowDeviceArray& out, ArrowSchema& schema) = 0;
  virtual void to_device(ArrowDeviceArray& out, ArrowSchema& schema) = 0;
};

/* Appends what is wrong with a column and with its children. */
void inspect(std::vector<std::string>& faults, const std::string& path, const cudf::column_view& c,
             cuda::stream_ref s) {
  auto fault = [&](const std::string& text) { faults.push_back(path + ": " + text); };
  if (c.offset()) fault("offset " + std::to_string(c.offset()));
  if (c.type().id() == cudf::type_id::EMPTY) return;  // all null, without a bitmap
  if (!c.nullable() && c.null_count()) fault("null count " + std::to_string(c.null_count()) + " without a bitmap");
  if (c.nullable()) {
    auto counted = cudf::null_count(c.null_mask(), c.offset(), c.offset() + c.size(), s);
    if (counted != c.null_count()) {
      fault("null count " + std::to_string(c.null_count()) + ", libcudf counts " + std::to_string(counted));
    }
  }
  for (cudf::size_type i = 0; i < c.num_children(); i++) {
    inspect(faults, path + "." + std::to_string(i), c.child(i), s);
  }
}

/* Appends where a column is another one than the array it was made of. */
void compare(std::vector<std::string>& faults, const std::string& path, const cudf::column_view& c,
             const ArrowSchema& s, const ArrowArray& a) {
  auto fault = [&](const std::string& text) { faults.push_back(path + ": " + text); };
  if (c.offset()) fault("offset " + std::to_string(c.offset()));
  if (c.size() != a.length) fault("size " + std::to_string(c.size()) + ", the array has " + std::to_string(a.length));
  if (c.type().id() != cudf::type_id::EMPTY && c.null_count() != a.null_count) {
    fault("null count " + std::to_string(c.null_count()) + ", the array has " + std::to_string(a.null_count));
  }
  const std::string format = s.format;
  cudf::size_type first = format == "+l" ? 1 : 0;  // the child before the values of a list has its offsets
  if (s.dictionary || (format != "+l" && format != "+s")) return;
  if (c.num_children() != first + a.n_children) {
    if (c.size()) fault(std::to_string(c.num_children()) + " children");
    return;
  }
  for (int64_t i = 0; i < a.n_children; i++) {
    compare(faults, path + "." + std::to_string(i), c.child(first + i), *s.children[i], *a.children[i]);
  }
}

std::string type_of(const cudf::column_view& c) {
  std::string type = cudf::type_to_name(c.type()), children;
  bool nested = c.type().id() == cudf::type_id::LIST || c.type().id() == cudf::type_id::STRUCT;
  for (cudf::size_type i = c.type().id() == cudf::type_id::LIST ? 1 : 0; nested && i < c.num_children(); i++) {
    children += (children.empty() ? "" : ", ") + type_of(c.child(i));
  }
  return children.empty() ? type : type + "<" + children + ">";
}

std::vector<std::string> faults_of(const cudf::table_view& table, cuda::stream_ref s) {
  std::vector<std::string> faults;
  for (cudf::size_type i = 0; i < table.num_columns(); i++) {
    auto path = "column " + std::to_string(i);
    inspect(faults, path, table.column(i), s);
    if (table.column(i).type().id() == cudf::type_id::EMPTY) continue;
    if (cudf::has_nonempty_nulls(table.column(i), s)) faults.push_back(path + ": has_nonempty_nulls");
  }
  return faults;
}

/* Moves the struct out of a pointer of libcudf, whose deleter releases only what is still there. */
void take(ArrowDeviceArray& out, cudf::unique_device_array_t from) {
  out = *from;
  from->array.release = nullptr;
}

void schema_of(ArrowSchema& out, const cudf::table_view& table, bool whole) {
  auto schema = cudf::to_arrow_schema(table, cudf::interop::get_table_metadata(table));
  ArrowSchema* from = whole ? schema.get() : schema->children[0];
  out = *from;
  from->release = nullptr;
}

class View : public Imported {
 public:
  View(Structs&& structs, bool table, cuda::stream_ref stream) : structs_(std::move(structs)), stream_(stream) {
    if (table) {
      table_ = cudf::from_arrow_device(&structs_.schema, &structs_.array, stream);
    } else {
      column_ = cudf::from_arrow_device_column(&structs_.schema, &structs_.array, stream);
    }
  }
  std::vector<std::string> faults() override { return faults_of(view(), stream_); }
  std::vector<std::string> structure(std::string& type) override {
    std::vector<std::string> faults;
    for (cudf::size_type i = 0; i < view().num_columns(); i++) {
      auto c = view().column(i);
      type = type_of(c);
      compare(faults, "column " + std::to_string(i), c, table() ? *structs_.schema.children[i] : structs_.schema,
              table() ? *structs_.array.array.children[i] : structs_.array.array);
    }
    return faults;
  }
  void to_host(ArrowDeviceArray& out, ArrowSchema& schema) override {
    schema_of(schema, view(), table());
    take(out, table() ? cudf::to_arrow_host(**table_, stream_) : cudf::to_arrow_host(**column_, stream_));
  }
  void to_device(ArrowDeviceArray& out, ArrowSchema& schema) override {
    schema_of(schema, view(), table());
    take(out, table() ? cudf::to_arrow_device(**table_, stream_) : cudf::to_arrow_device(**column_, stream_));
  }

 private:
  bool table() const { return table_.has_value(); }
  cudf::table_view view() const { return table() ? **table_ : cudf::table_view({**column_}); }

  Structs structs_;  // the views are into its memory
  cuda::stream_ref stream_;
  std::optional<cudf::unique_table_view_t> table_;
  std::optional<cudf::unique_column_view_t> column_;
};

class Owning : public Imported {
 public:
  Owning(Structs&& structs, bool table, cuda::stream_ref stream) : stream_(stream) {
    if (table) {
      table_.emplace(std::move(structs.schema), std::move(structs.array), stream);
    } else {
      column_.emplace(std::move(structs.schema), std::move(structs.array), stream);
    }
  }
  std::vector<std::string> faults() override { return faults_of(view(), stream_); }
  std::vector<std::string> structure(std::string& type) override {
    for (const auto& c : view()) type = type_of(c);
    return {};
  }
  void to_host(ArrowDeviceArray& out, ArrowSchema& schema) override {
    schema_of(schema, view(), table_.has_value());
    take(out, table_ ? cudf::to_arrow_host(table_->view(), stream_) : cudf::to_arrow_host(column_->view(), stream_));
  }
  void to_device(ArrowDeviceArray& out, ArrowSchema& schema) override {
    if (table_) {
      table_->to_arrow_schema(&schema, stream_);
      table_->to_arrow(&out, ARROW_DEVICE_CUDA, stream_);
    } else {
      column_->to_arrow_schema(&schema, stream_);
      column_->to_arrow(&out, ARROW_DEVICE_CUDA, stream_);
    }
  }

 private:
  cudf::table_view view() const { return table_ ? table_->view() : cudf::table_view({column_->view()}); }

  cuda::stream_ref stream_;
  std::optional<cudf::interop::arrow_table> table_;
  std::optional<cudf::interop::arrow_column> column_;
};

thread_local std::string text;  // of the last call of this thread

/* Runs the body of a function for Python, which leaves a text, or the text of an error. */
int guard(const std::function<void()>& body) {
  try {
    text.clear();
    body();
    return 0;
  } catch (const std::exception& e) {
    text = e.what();
    return 1;
  }
}

}  // namespace

extern "C" {

const char* kit_text() { return text.c_str(); }

/* Imports a table or a column, as work on a stream, without waiting for it, and takes the structs. NULL is an error. */
Imported* kit_import(const char* kind, ArrowDeviceArray* array, ArrowSchema* schema, int table, void* stream) {
  Imported* made = nullptr;
  guard([&] {
    Structs structs(*array, *schema);
    cuda::stream_ref ref(static_cast<cudaStream_t>(stream));
    if (std::string(kind) == "view") {
      made = new View(std::move(structs), table, ref);
    } else {
      made = new Owning(std::move(structs), table, ref);
    }
  });
  return made;
}

/* The faults, one a line. */
int kit_faults(Imported* imported) {
  return guard([&] {
    for (auto& fault : imported->faults()) text += fault + "\n";
  });
}

/* The type, and the faults of the structure, one a line. */
int kit_structure(Imported* imported) {
  return guard([&] {
    std::string type, lines;
    for (auto& fault : imported->structure(type)) lines += "\n" + fault;
    text = type + lines;
  });
}

int kit_export(Imported* imported, int device, ArrowDeviceArray* out, ArrowSchema* schema) {
  return guard([&] { device ? imported->to_device(*out, *schema) : imported->to_host(*out, *schema); });
}

int kit_release(Imported* imported) {
  return guard([&] { delete imported; });
}

}  // extern "C"
