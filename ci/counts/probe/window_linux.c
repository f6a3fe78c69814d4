#include "window.h"

#include <stddef.h>

/* Neither function is inlined, or found to do nothing. */
__attribute__((noinline)) void window_begin(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void window_end(void) { __asm__ volatile("" ::: "memory"); }

static int64_t mallocs;

int64_t window_mallocs(void) { return __atomic_load_n(&mallocs, __ATOMIC_RELAXED); }

/* The code of the program, by the linker. */
extern const char __executable_start, etext;

static void count(const void* caller) {
  if ((const char*)caller >= &__executable_start && (const char*)caller < &etext)
    __atomic_fetch_add(&mallocs, 1, __ATOMIC_RELAXED);
}

/* The functions of the C library, under the names that it has for a program that replaces them. */
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t n, size_t size);
void* __libc_realloc(void* at, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  count(__builtin_return_address(0));
  return __libc_malloc(size);
}

void* calloc(size_t n, size_t size) {
  count(__builtin_return_address(0));
  return __libc_calloc(n, size);
}

void* realloc(void* at, size_t size) {
  count(__builtin_return_address(0));
  return __libc_realloc(at, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  count(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
