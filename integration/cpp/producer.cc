// An asynchronous producer: ExportAsyncRecordBatchReader over a reader.

#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/util/future.h>
#include <arrow/util/thread_pool.h>

#include <memory>

#include "source.h"

namespace {

using arrow::Future;
using arrow::RecordBatch;
using arrow::Status;
using arrow::internal::ThreadPool;

// One thread runs Arrow's producer, which blocks in it while nothing is
// requested; another reads the source.
struct Producer {
  peer::Counted counted{peer::alive.producers};
  std::shared_ptr<ThreadPool> exports, reads;
  Future<> done;
};

Status Start(ArrowArrayStream* source, ArrowDeviceType type, int64_t device_id, const peer::Failure& failure,
             ArrowAsyncDeviceStreamHandler* handler, Producer** out) {
  ARROW_ASSIGN_OR_RAISE(auto reader, peer::MakeSource(source, type, device_id, failure));
  auto producer = std::make_unique<Producer>();
  ARROW_ASSIGN_OR_RAISE(producer->exports, ThreadPool::Make(1));
  ARROW_ASSIGN_OR_RAISE(producer->reads, ThreadPool::Make(1));
  auto schema = reader->schema();
  auto device_type = reader->device_type();
  auto generate = [reads = producer->reads.get(),
                   reader = std::move(reader)]() -> Future<std::shared_ptr<RecordBatch>> {
    return arrow::DeferNotOk(reads->Submit([reader] { return reader->Next(); }));
  };
  auto run = [schema, generate, device_type, handler] {
    return arrow::ExportAsyncRecordBatchReader(schema, generate, device_type, handler);
  };
  ARROW_ASSIGN_OR_RAISE(producer->done, producer->exports->Submit(std::move(run)));
  *out = producer.release();
  return Status::OK();
}

Status Close(Producer* producer) {
  if (!producer->done.Wait(peer::kPatience)) return Status::UnknownError("the producer did not come to its end");
  producer->done = Future<>();
  ARROW_RETURN_NOT_OK(producer->exports->Shutdown());
  ARROW_RETURN_NOT_OK(producer->reads->Shutdown());
  delete producer;
  return Status::OK();
}

}  // namespace

extern "C" {

// Starts a producer of a plain stream, which it takes, and returns at once.
char* cpp_producer_start(ArrowArrayStream* source, int32_t device_type, int64_t device_id, int64_t fails_after,
                         int32_t status, const char* message, ArrowAsyncDeviceStreamHandler* handler, Producer** out) {
  return peer::Answer(Start(source, device_type, device_id, {fails_after, status, message}, handler, out));
}

// Waits for the end, and for the threads.
char* cpp_producer_close(Producer* producer) { return peer::Answer(Close(producer)); }
}
