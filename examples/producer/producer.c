// A library that knows nothing of Go: it fills memory of a GPU on a stream of its own, and does not wait for that. It
// loads the driver itself, so that it is built without CUDA.
#include "producer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef unsigned long long address;  // CUdeviceptr

static struct {
  int (*init)(unsigned), (*device)(int*, int), (*retain)(void**, int), (*drop)(int), (*push)(void*), (*pop)(void**);
  int (*allocate)(address*, size_t), (*release)(address), (*fill)(address, unsigned, size_t, void*);
  int (*stream)(void**, unsigned), (*end_stream)(void*), (*event)(void**, unsigned), (*record)(void*, void*),
      (*end_event)(void*);
  int gpu, error;
} cuda;

static void load(void) {
  const char* name = getenv("CDEVICE_CUDA_DRIVER");
  void* driver = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW);
  struct {
    void* to;
    const char* name;
  } calls[] = {{&cuda.init, "cuInit"},
               {&cuda.device, "cuDeviceGet"},
               {&cuda.retain, "cuDevicePrimaryCtxRetain"},
               {&cuda.drop, "cuDevicePrimaryCtxRelease_v2"},
               {&cuda.push, "cuCtxPushCurrent_v2"},
               {&cuda.pop, "cuCtxPopCurrent_v2"},
               {&cuda.allocate, "cuMemAlloc_v2"},
               {&cuda.release, "cuMemFree_v2"},
               {&cuda.fill, "cuMemsetD32Async"},
               {&cuda.stream, "cuStreamCreate"},
               {&cuda.end_stream, "cuStreamDestroy_v2"},
               {&cuda.event, "cuEventCreate"},
               {&cuda.record, "cuEventRecord"},
               {&cuda.end_event, "cuEventDestroy_v2"}};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (!driver || !(*(void**)calls[i].to = dlsym(driver, calls[i].name))) {
      cuda.error = 100;  // CUDA_ERROR_NO_DEVICE
      return;
    }
  if (!(cuda.error = cuda.init(0))) cuda.error = cuda.device(&cuda.gpu, 0);
}

// What a batch needs until the last of its structs is released: a consumer may move the column out.
struct batch {
  atomic_int structs;
  address memory;
  void *context, *stream, *event;
  const void *no_buffers[1], *buffers[2];
  struct ArrowArray column, *columns[1];
};

// end is called on any thread, once no work uses the memory.
static void end(struct batch* b) {
  if (atomic_fetch_sub(&b->structs, 1) != 1) return;
  cuda.push(b->context);
  if (b->event) cuda.end_event(b->event);
  if (b->stream) cuda.end_stream(b->stream);
  if (b->memory) cuda.release(b->memory);
  cuda.pop(&(void*){NULL});
  cuda.drop(cuda.gpu);
  free(b);
}

static void release_column(struct ArrowArray* a) {
  a->release = NULL;
  end(a->private_data);
}

static void release_batch(struct ArrowArray* a) {
  if (a->children[0]->release) a->children[0]->release(a->children[0]);
  release_column(a);
}

int produce(int32_t value, int64_t rows, struct ArrowDeviceArray* out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  if (cuda.error) return cuda.error;
  struct batch* b = calloc(1, sizeof *b);
  if (!b) return 2;  // CUDA_ERROR_OUT_OF_MEMORY

  int code = cuda.retain(&b->context, cuda.gpu);  // the context that cuDF, PyTorch and package cudaalloc use
  if (code) {
    free(b);
    return code;
  }
  b->structs = 1;
  cuda.push(b->context);
  if ((code = cuda.stream(&b->stream, 1)) || (code = cuda.event(&b->event, 2)) ||
      (code = cuda.allocate(&b->memory, rows * 4)) || (code = cuda.fill(b->memory, value, rows, b->stream)) ||
      (code = cuda.record(b->event, b->stream))) {
    end(b);
  } else {
    b->structs = 2;
    b->buffers[1] = (void*)b->memory;  // the bitmap is NULL: no nulls
    b->columns[0] = &b->column;
    b->column = (struct ArrowArray){
        .length = rows, .n_buffers = 2, .buffers = b->buffers, .release = release_column, .private_data = b};
    *out = (struct ArrowDeviceArray){
        .array = {.length = rows,
                  .n_buffers = 1,
                  .n_children = 1,
                  .buffers = b->no_buffers,
                  .children = b->columns,
                  .release = release_batch,
                  .private_data = b},
        .device_type = ARROW_DEVICE_CUDA,
        .sync_event = &b->event,  // after which the memory may be read
    };
  }
  cuda.pop(&(void*){NULL});
  return code;
}
