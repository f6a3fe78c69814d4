/* What rules share. */
#include "rules.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* For is_filled, made before a rule begins, and never freed: either could wait for the work behind a gate. */
enum { STAGE = 1 << 16 };
static unsigned char* stage;

void make_stage(void) {
  if (stage != NULL) return;
  stage = new_pinned(STAGE);
  ended(PAGE_LOCKED, stage, CUDA_SUCCESS); /* it stays */
}

static CUcontext contexts[64];

bool is_used(int ordinal) { return contexts[ordinal] != NULL; }

void reset(int ordinal) {
  OK(cuDevicePrimaryCtxReset_v2(ordinal));
  contexts[ordinal] = NULL;
}

CUcontext use(int ordinal) {
  if (contexts[ordinal] == NULL) {
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&contexts[ordinal], ordinal));
  }
  OK(cuCtxSetCurrent(contexts[ordinal]));
  return contexts[ordinal];
}

static CUstream make_stream(unsigned flags) {
  CUstream stream = NULL;
  OK(cuStreamCreate(&stream, flags));
  made(STREAM, stream);
  return stream;
}

CUstream new_stream(void) { return make_stream(CU_STREAM_NON_BLOCKING); }
CUstream new_blocking_stream(void) { return make_stream(CU_STREAM_DEFAULT); }

static CUevent make_event(unsigned flags) {
  CUevent event = NULL;
  OK(cuEventCreate(&event, flags));
  made(EVENT, event);
  return event;
}

CUevent new_event(void) { return make_event(CU_EVENT_DISABLE_TIMING); }
CUevent new_timed_event(void) { return make_event(CU_EVENT_DEFAULT); }

CUdeviceptr new_memory(size_t size) {
  CUdeviceptr memory = 0;
  OK(cuMemAlloc_v2(&memory, size));
  made(MEMORY, (void*)memory);
  return memory;
}

CUdeviceptr new_managed(size_t size) {
  CUdeviceptr memory = 0;
  OK(cuMemAllocManaged(&memory, size, CU_MEM_ATTACH_GLOBAL));
  made(MEMORY, (void*)memory);
  return memory;
}

CUdeviceptr allocate(size_t size, CUstream stream) {
  CUdeviceptr memory = 0;
  OK(cuMemAllocAsync(&memory, size, stream));
  return memory;
}

CUmemoryPool new_pool(CUmemLocation where, int type) {
  CUmemoryPool pool = NULL;
  CUmemPoolProps props = {.allocType = type, .location = where};
  OK(cuMemPoolCreate(&pool, &props));
  made(POOL, pool);
  return pool;
}

unsigned char* new_pinned(size_t size) {
  void* memory = NULL;
  OK(cuMemHostAlloc(&memory, size, CU_MEMHOSTALLOC_PORTABLE));
  made(PAGE_LOCKED, memory);
  return memory;
}

size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

unsigned char* new_pages(size_t size) {
  void* pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) stop("no pages can be mapped");
  memset(pages, 0, size);
  return pages;
}

CUdeviceptr address(const void* p) { return (CUdeviceptr)(uintptr_t)p; }

bool all_bytes(const unsigned char* bytes, unsigned char value, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (bytes[i] != value) return false;
  return true;
}

bool is_filled(CUdeviceptr memory, unsigned char value, size_t size) {
  CUstream s = new_stream();
  bool is = true;
  make_stage();
  for (size_t done = 0, n; done < size; done += n) {
    n = size - done < STAGE ? size - done : STAGE;
    OK(cuMemcpyDtoHAsync_v2(stage, memory + done, n, s));
    OK(cuStreamSynchronize(s));
    is = is && all_bytes(stage, value, n);
  }
  OK(cuStreamDestroy_v2(s));
  return is;
}

void fill(CUdeviceptr memory, unsigned char value, size_t size) {
  CUstream s = new_stream();
  OK(cuMemsetD8Async(memory, value, size, s));
  OK(cuStreamSynchronize(s));
  OK(cuStreamDestroy_v2(s));
}

int attribute(int name, int device) {
  int value = 0;
  return cuDeviceGetAttribute(&value, name, device) == CUDA_SUCCESS ? value : 0;
}

void needs_13(void) {
  int version = 0;
  OK(cuDriverGetVersion(&version));
  if (version < 13000) skip("needs a driver of CUDA 13");
}

static void* run_thread(void* data) {
  struct thread* thread = data;
  thread->run(thread->data);
  return NULL;
}

void start(struct thread* thread, void (*run)(void*), void* data) {
  thread->run = run;
  thread->data = data;
  if (pthread_create(&thread->id, NULL, run_thread, thread)) stop("no thread can be made");
}

void join(struct thread* thread) { pthread_join(thread->id, NULL); }

void on_thread(void (*run)(void*), void* data) {
  struct thread thread;
  start(&thread, run, data);
  join(&thread);
}

static sigjmp_buf after_fault;

static void on_fault(int signal) { siglongjmp(after_fault, signal); }

static bool touch(volatile char* p, bool write) {
  struct sigaction handler = {.sa_handler = on_fault}, segv, bus;
  volatile bool touched = false;
  sigaction(SIGSEGV, &handler, &segv);
  sigaction(SIGBUS, &handler, &bus);
  if (sigsetjmp(after_fault, 1) == 0) {
    char c = *p;
    if (write) *p = c;
    touched = true;
  }
  sigaction(SIGSEGV, &segv, NULL);
  sigaction(SIGBUS, &bus, NULL);
  return touched;
}

bool host_reads(const volatile void* p) { return touch((volatile char*)(uintptr_t)p, false); }
bool host_writes(volatile void* p) { return touch(p, true); }

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void nap(int milliseconds) {
  struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  nanosleep(&t, NULL);
}
