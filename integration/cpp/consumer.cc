// An asynchronous consumer: CreateAsyncDeviceStreamHandler and its generator.

#include <arrow/c/bridge.h>
#include <arrow/record_batch.h>
#include <arrow/util/future.h>
#include <arrow/util/key_value_metadata.h>
#include <arrow/util/thread_pool.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "peer.h"

namespace {

using arrow::AsyncRecordBatchGenerator;
using arrow::Future;
using arrow::RecordBatchWithMetadata;
using arrow::Status;

constexpr std::chrono::duration<double> kPatience(peer::kPatience);

class Consumer;

// A handler that knows whose it is; its private data is Arrow's.
struct Handler : ArrowAsyncDeviceStreamHandler {
  Consumer* consumer;
};

// The handler is Arrow's, but for its release, which is known here too: this
// object, and with it the handler, must not end before.
class Consumer {
 public:
  static arrow::Result<Consumer*> Make(uint64_t queue_size, int threads) {
    auto consumer = std::make_unique<Consumer>();
    ARROW_ASSIGN_OR_RAISE(consumer->pool_, arrow::internal::ThreadPool::Make(threads));
    consumer->stream_ = arrow::CreateAsyncDeviceStreamHandler(&consumer->handler_, consumer->pool_.get(), queue_size);
    consumer->release_ = consumer->handler_.release;
    consumer->handler_.consumer = consumer.get();
    consumer->handler_.release = OnRelease;
    consumer->stream_.AddCallback([self = consumer.get()](const arrow::Result<AsyncRecordBatchGenerator>&) {
      std::lock_guard lock(self->mutex_);
      self->changed_.notify_all();
    });
    return consumer.release();
  }

  ArrowAsyncDeviceStreamHandler* handler() { return &handler_; }

  // Waits for on_schema, or an error.
  Status Schema(ArrowSchema* out) {
    ARROW_RETURN_NOT_OK(WaitForSchema());
    return arrow::ExportSchema(*stream_.result()->schema, out);
  }

  int32_t device_type() { return static_cast<int32_t>(stream_.result()->device_type); }

  // The next batch. At the end both are released. The metadata of a batch is the
  // metadata of an empty schema.
  Status Next(ArrowArray* out, ArrowSchema* out_metadata) {
    out->release = nullptr;
    out_metadata->release = nullptr;
    ARROW_ASSIGN_OR_RAISE(auto next, Generate());
    if (next.batch == nullptr) return Status::OK();
    ARROW_ASSIGN_OR_RAISE(auto batch, next.batch->ViewOrCopyTo(arrow::default_cpu_memory_manager()));
    ARROW_RETURN_NOT_OK(arrow::ExportSchema(*arrow::schema({}, next.custom_metadata), out_metadata));
    return arrow::ExportRecordBatch(*batch, out);
  }

  // Arrow's generator has no cancel; the owner of the handler has. Does nothing before the producer
  // set itself, and after it released the handler.
  void Cancel() {
    std::lock_guard lock(mutex_);
    if (released_ || handler_.producer == nullptr) return;
    cancelled_ = true;
    handler_.producer->cancel(handler_.producer);
  }

  // Arrow's only way to end early. The producer is not cancelled, and queued tasks are lost. May
  // wait until the producer calls the handler once more.
  void Drop() { stream_ = Future<AsyncRecordBatchGenerator>(); }

  Status WaitForRelease() {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kPatience, [&] { return released_ && !releasing_; })) return Status::OK();
    return Status::UnknownError("the producer did not release the handler");
  }

  // Cancels, takes the remaining tasks, and waits for the producer and for our own threads. After
  // an error a late callback may still arrive, so nothing is freed.
  static Status End(Consumer* self) {
    if (self->handler_.producer == nullptr && !self->released_) {
      self->handler_.release(&self->handler_);  // no producer ever had it
    }
    self->Cancel();
    ARROW_RETURN_NOT_OK(self->Drain());
    ARROW_RETURN_NOT_OK(self->WaitForRelease());
    self->Drop();
    ARROW_RETURN_NOT_OK(self->pool_->Shutdown());
    delete self;
    return Status::OK();
  }

 private:
  static void OnRelease(ArrowAsyncDeviceStreamHandler* handler) {
    auto* self = static_cast<Handler*>(handler)->consumer;
    self->SetReleased(true);
    // A producer that was cancelled need not send anything more, but Arrow's generator waits for
    // the end.
    if (self->cancelled_) handler->on_next_task(handler, nullptr, nullptr);
    self->release_(handler);
    self->SetReleased(false);
  }

  // The producer is not called from here on, not even while release runs.
  void SetReleased(bool releasing) {
    std::lock_guard lock(mutex_);
    released_ = true;
    releasing_ = releasing;
    changed_.notify_all();
  }

  // Arrow's future stays as it is when the handler is released without a word.
  Status WaitForSchema() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return stream_.is_finished() || (released_ && !releasing_); });
    if (stream_.is_finished()) return stream_.status();
    return Status::UnknownError(released_ ? "released without a schema" : "waited in vain for on_schema");
  }

  arrow::Result<RecordBatchWithMetadata> Generate() {
    ARROW_RETURN_NOT_OK(WaitForSchema());
    auto next = stream_.result()->generator();
    if (next.Wait(peer::kPatience)) return next.result();
    stuck_ = true;
    return Status::UnknownError("waited in vain for a batch");
  }

  // Until the end or an error: tasks queued when the generator ends are lost.
  Status Drain() {
    if (!stream_.is_valid()) return Status::OK();
    auto next = Generate();
    while (next.ok() && next->batch != nullptr) next = Generate();
    return stuck_ ? next.status() : Status::OK();
  }

  Handler handler_{};
  void (*release_)(ArrowAsyncDeviceStreamHandler*) = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false, releasing_ = false;
  std::atomic<bool> cancelled_ = false;
  bool stuck_ = false;  // a thread of the executor waits for the producer, and may for ever
  std::shared_ptr<arrow::internal::ThreadPool> pool_;
  Future<AsyncRecordBatchGenerator> stream_;
  peer::Counted counted_{peer::alive.consumers};
};

}  // namespace

extern "C" {

char* cpp_consumer_new(uint64_t queue_size, int threads, Consumer** out) {
  return peer::Answer(Consumer::Make(queue_size, threads).Value(out));
}

// The handler to give to a producer.
ArrowAsyncDeviceStreamHandler* cpp_consumer_handler(Consumer* consumer) { return consumer->handler(); }

char* cpp_consumer_schema(Consumer* consumer, ArrowSchema* out) { return peer::Answer(consumer->Schema(out)); }

int32_t cpp_consumer_device_type(Consumer* consumer) { return consumer->device_type(); }

char* cpp_consumer_next(Consumer* consumer, ArrowArray* out, ArrowSchema* metadata) {
  return peer::Answer(consumer->Next(out, metadata));
}

void cpp_consumer_cancel(Consumer* consumer) { consumer->Cancel(); }

// Drops the generator.
void cpp_consumer_drop(Consumer* consumer) { consumer->Drop(); }

char* cpp_consumer_wait_for_release(Consumer* consumer) { return peer::Answer(consumer->WaitForRelease()); }

// Ends a consumer, early or not, as one should: with a cancel, to the end.
char* cpp_consumer_close(Consumer* consumer) { return peer::Answer(Consumer::End(consumer)); }
}
