/* Finding the driver. */
#include "driver.h"

#include <stdio.h>

#ifdef _WIN32
#include <windows.h>

static void* open_library(const char* path, char* text, size_t size) {
  void* library = (void*)LoadLibraryA(path);
  if (!library) snprintf(text, size, "%s: error %lu", path, (unsigned long)GetLastError());
  return library;
}

static void* find(void* library, const char* symbol) { return (void*)GetProcAddress((HMODULE)library, symbol); }

#else
#include <dlfcn.h>

static void* open_library(const char* path, char* text, size_t size) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    snprintf(text, size, "%s", reason ? reason : path);
  }
  return library;
}

static void* find(void* library, const char* symbol) { return dlsym(library, symbol); }
#endif

#define FUNCTION(need, name, symbol, parameters) {#name, symbol},
const struct cdevice_v0_cuda_function cdevice_v0_cuda_functions[cdevice_v0_cuda_calls] = {
    CDEVICE_V0_CUDA_FUNCTIONS(FUNCTION, , )};

/* The library is never unloaded: the driver has threads of its own, and handles of
 * it live wherever they were passed. */
const char* cdevice_v0_cuda_load(const char* path, cdevice_v0_cuda_driver* driver, const char** missing, char* text,
                                 size_t size) {
  *missing = NULL;
  void* library = open_library(path, text, size);
  if (!library) return text;

  /* ISO C has no cast from an object pointer to a function pointer; every system
   * with dlsym has. */
#define FIND(need, name, symbol, parameters)      \
  *(void**)&driver->name = find(library, symbol); \
  if (need && !driver->name && !*missing) *missing = symbol;
  CDEVICE_V0_CUDA_FUNCTIONS(FIND, 1, 0)
  return NULL;
}
