/* Finding the driver. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include "driver.h"

#include <stdio.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>

static void* open_library(const char* path, char* text, size_t size) {
  void* library = (void*)LoadLibraryA(path);
  if (!library) snprintf(text, size, "%s: error %lu", path, (unsigned long)GetLastError());
  return library;
}

static void* find(void* library, const char* symbol) { return (void*)GetProcAddress((HMODULE)library, symbol); }

static void find_file(void* library, void* function, char* file, size_t size) {
  if (!function || !GetModuleFileNameA((HMODULE)library, file, (DWORD)size)) file[0] = 0;
}

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

static void find_file(void* library, void* function, char* file, size_t size) {
  (void)library;
  Dl_info info;
  if (function && dladdr(function, &info) && info.dli_fname) snprintf(file, size, "%s", info.dli_fname);
}
#endif

#define FUNCTION(need, name, symbol, parameters) {#name, symbol, need},
const struct cdevice_v0_cuda_function cdevice_v0_cuda_functions[cdevice_v0_cuda_calls] = {
    CDEVICE_V0_CUDA_FUNCTIONS(FUNCTION, 1, 0)};

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
#define FIND_WATCHER(name, result, parameters) *(void**)&driver->name = find(library, #name);
  CDEVICE_V0_CUDA_WATCHER(FIND_WATCHER)
  return NULL;
}

const char* cdevice_v0_cuda_inspect(const char* path, cdevice_v0_cuda_library* out, char* text, size_t size) {
  memset(out, 0, sizeof *out);
  void* library = open_library(path, text, size);
  if (!library) return text;

  void* one = NULL;
  for (int i = 0; i < cdevice_v0_cuda_calls; i++) {
    void* found = find(library, cdevice_v0_cuda_functions[i].symbol);
    out->absent[i] = !found;
    if (!one) one = found;
  }
  find_file(library, one, out->file, sizeof out->file);
  return NULL;
}

int cdevice_v0_cuda_has(const char* path, const char* symbol) {
  char text[1024];
  void* library = open_library(path, text, sizeof text);
  return library && find(library, symbol);
}
