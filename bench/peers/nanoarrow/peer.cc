// The nanoarrow peer: its entry points and operations.

#include <nanoarrow/nanoarrow.h>
#include <nanoarrow/nanoarrow_device.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "../peer.h"

namespace {

thread_local std::string last_error;

struct Operation {
  int (*run)(Operation*, int64_t n);
  ArrowSchema schema;    // moved here
  ArrowArray shared;     // the batch, as ArrowArrayMoveShared makes it
  ArrowArrayView view;   // of the schema; of the batch for validation
  ArrowArrayView fresh;  // that import makes of the schema
  bench_producer* producer;
  bench_consumer* consumer;
  ArrowError error;
  int64_t sum;  // of values
  std::vector<ArrowDeviceArray> live;
};

// An export: a clone that shares the buffers, in a struct for the CPU.
int Export(Operation* o, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    ArrowArray array;
    NANOARROW_RETURN_NOT_OK(ArrowArrayCloneShared(&o->shared, &array));
    ArrowDeviceArray out;
    NANOARROW_RETURN_NOT_OK(ArrowDeviceArrayInit(ArrowDeviceCpu(), &out, &array, nullptr));
    o->consumer->take(o->consumer, &out.array);
  }
  return NANOARROW_OK;
}

// Exports that stay live until the end.
int Live(Operation* o, int64_t n) {
  o->live.reserve(n);
  for (int64_t i = 0; i < n; i++) {
    ArrowArray array;
    NANOARROW_RETURN_NOT_OK(ArrowArrayCloneShared(&o->shared, &array));
    o->live.emplace_back();
    NANOARROW_RETURN_NOT_OK(ArrowDeviceArrayInit(ArrowDeviceCpu(), &o->live.back(), &array, nullptr));
  }
  return NANOARROW_OK;
}

// An import: the view, which was made of the schema before, is set to the array. This checks the
// structure, and the first and the last offset.
int Import(Operation* o, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    ArrowDeviceArray in;
    o->producer->give(o->producer, &in);
    int code = ArrowArrayViewSetArray(&o->view, &in.array, &o->error);
    in.array.release(&in.array);
    NANOARROW_RETURN_NOT_OK(code);
  }
  return NANOARROW_OK;
}

// The values are read where they are, as by the others: through the pointer in the view.
int ImportValues(Operation* o, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    ArrowDeviceArray in;
    o->producer->give(o->producer, &in);
    int code = ArrowArrayViewSetArray(&o->view, &in.array, &o->error);
    if (code == NANOARROW_OK) {
      const ArrowArrayView* column = o->view.children[0];
      const int64_t* values = column->buffer_views[1].data.as_int64 + column->offset;
      int64_t sum = 0;
      for (int64_t row = 0; row < column->length; row++) sum += values[row];
      o->sum += sum;
    }
    in.array.release(&in.array);
    NANOARROW_RETURN_NOT_OK(code);
  }
  return NANOARROW_OK;
}

// A schema both ways: nanoarrow's own schema is the C struct, so that the export is a deep copy. The import parses
// it to what arrays are read with.
int Schema(Operation* o, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    ArrowSchema copy;
    NANOARROW_RETURN_NOT_OK(ArrowSchemaDeepCopy(&o->schema, &copy));
    int code = ArrowArrayViewInitFromSchema(&o->fresh, &copy, &o->error);
    ArrowArrayViewReset(&o->fresh);
    copy.release(&copy);
    NANOARROW_RETURN_NOT_OK(code);
  }
  return NANOARROW_OK;
}

// It does not check that strings are UTF-8.
int Validate(Operation* o, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    NANOARROW_RETURN_NOT_OK(ArrowArrayViewValidate(&o->view, NANOARROW_VALIDATION_LEVEL_FULL, &o->error));
  }
  return NANOARROW_OK;
}

const struct {
  const char* name;
  int (*run)(Operation*, int64_t);
} operations[] = {
    {"export, released in C", Export},
    {"wrap+export, released in C", Export},
    {"import+release", Import},
    {"import+view+release", Import},
    {"import+view, one column read", Import},
    {"import+values, one column read", ImportValues},
    {"schema, first time", Schema},
    {"schema again", Schema},
    {"full validation", Validate},
    {"live exports", Live},
};

int Prepare(Operation* o, ArrowSchema* schema, ArrowDeviceArray* batch) {
  ArrowSchemaMove(schema, &o->schema);
  NANOARROW_RETURN_NOT_OK(ArrowArrayViewInitFromSchema(&o->view, &o->schema, &o->error));
  if (o->run == Validate || o->run == Import || o->run == ImportValues || o->run == Schema) {
    ArrowArrayMove(&batch->array, &o->shared);
    return ArrowArrayViewSetArray(&o->view, &o->shared, &o->error);
  }
  return ArrowArrayMoveShared(&batch->array, &o->shared);
}

int Failed(Operation* o, int code) {
  last_error = std::string(strerror(code)) + ": " + o->error.message;
  return code;
}

}  // namespace

const char* peer_version() { return ArrowNanoarrowVersion(); }

const char* peer_error() { return last_error.c_str(); }

void* peer_open(const char* name, ArrowSchema* schema, ArrowDeviceArray* batch, bench_producer* producer,
                bench_consumer* consumer) {
  last_error = "";
  auto* o = new Operation();
  o->producer = producer;
  o->consumer = consumer;
  for (const auto& operation : operations) {
    if (strcmp(operation.name, name) == 0) o->run = operation.run;
  }
  int code = o->run == nullptr ? NANOARROW_OK : Prepare(o, schema, batch);
  if (o->run != nullptr && code == NANOARROW_OK) return o;
  if (code != NANOARROW_OK) Failed(o, code);
  if (o->run == nullptr) {
    schema->release(schema);
    batch->array.release(&batch->array);
  }
  peer_close(o);
  return nullptr;
}

int peer_run(void* operation, int64_t n) {
  auto* o = static_cast<Operation*>(operation);
  int code = o->run(o, n);
  return code == NANOARROW_OK ? 0 : Failed(o, code);
}

void peer_close(void* operation) {
  auto* o = static_cast<Operation*>(operation);
  for (auto& array : o->live) array.array.release(&array.array);
  ArrowArrayViewReset(&o->view);
  if (o->shared.release != nullptr) o->shared.release(&o->shared);
  if (o->schema.release != nullptr) o->schema.release(&o->schema);
  delete o;
}
