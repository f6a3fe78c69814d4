// The functions of measure.py by nanobind. It has no Arrow: batches and streams are capsules' structs, as in ../c.
#include <nanobind/nanobind.h>

#include <cstring>
#include <stdexcept>

#include "arrow_device.h"

namespace nb = nanobind;

namespace {

template <typename T>
T* pointer(nb::handle capsule, const char* name) {
  void* p = PyCapsule_GetPointer(capsule.ptr(), name);
  if (!p) nb::raise_python_error();
  return static_cast<T*>(p);
}

int64_t rows(nb::handle batch) {
  nb::tuple capsules = nb::cast<nb::tuple>(batch.attr("__arrow_c_array__")());
  if (std::strcmp(pointer<ArrowSchema>(capsules[0], "arrow_schema")->format, "+s") != 0)
    throw nb::type_error("it is no batch");
  return pointer<ArrowArray>(capsules[1], "arrow_array")->length;
}

int64_t rows_of_stream(nb::handle object) {
  nb::object capsule = object.attr("__arrow_c_stream__")();
  auto* stream = pointer<ArrowArrayStream>(capsule, "arrow_array_stream");
  nb::gil_scoped_release unlocked;
  ArrowSchema schema;
  if (stream->get_schema(stream, &schema)) throw std::runtime_error("the stream failed");
  schema.release(&schema);
  for (int64_t total = 0;;) {
    ArrowArray array;
    if (stream->get_next(stream, &array)) throw std::runtime_error("the stream failed");
    if (!array.release) return total;
    total += array.length;
    array.release(&array);
  }
}

}  // namespace

NB_MODULE(by_nanobind, module) {
  module.def("empty", [] {});
  module.def("add", [](int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  });
  module.def("rows", rows);
  module.def("rows_of_stream", rows_of_stream);
}
