/* What the programs of order/ use: the driver API, checks that end the process, and helpers that order/main.c has. The
 * rules of the simulator have simulator.h. */
#pragma once

#include "../src/cuda_api.h"
#include "../src/cudasim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void check_result(const char *file, int line, const char *call, int got, int want);

#define IS(call, result) check_result(__FILE__, __LINE__, #call, call, result)
#define OK(call) IS(call, CUDA_SUCCESS)
#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) fail(__FILE__, __LINE__, "not so: %s", #condition); \
  } while (0)
#define SAME(a, b)                                                                    \
  do {                                                                                \
    long long a_ = (long long)(a), b_ = (long long)(b);                               \
    if (a_ != b_) fail(__FILE__, __LINE__, "%s is %lld, %s is %lld", #a, a_, #b, b_); \
  } while (0)

enum { CU_EVENT_DEFAULT = 0, CU_STREAM_DEFAULT = 0 };

CUcontext use(int ordinal); /* makes the primary context of a device current on this thread */
CUstream new_stream(void);  /* of CU_STREAM_NON_BLOCKING */
CUstream new_blocking_stream(void);
CUevent new_event(void);
CUdeviceptr new_memory(size_t size);
unsigned char *new_pinned(size_t size);

struct thread {
  pthread_t id;
  void (*run)(void *);
  void *data;
};
void on_thread(void (*run)(void *), void *data); /* on another one, and waits */
