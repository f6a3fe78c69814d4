/* Python's global interpreter lock, found at run time: nothing links Python. */
#include "bridge.h"

#ifdef _WIN32
#include <windows.h>

#include <psapi.h>

/* The file with Python is not known by name: it has the version in it, or is the program. */
static void* find(const char* name) {
  HMODULE modules[1024];
  DWORD size = 0;
  if (!K32EnumProcessModules(GetCurrentProcess(), modules, sizeof modules, &size)) return NULL;
  size_t count = (size < sizeof modules ? size : sizeof modules) / sizeof *modules;
  for (size_t i = 0; i < count; i++) {
    void* found = (void*)(uintptr_t)GetProcAddress(modules[i], name);
    if (found) return found;
  }
  return NULL;
}
#else
#include <dlfcn.h>

static void* find(const char* name) { return dlsym(RTLD_DEFAULT, name); }
#endif

/* What was found: a search takes longer than the call. Nothing is kept while there is no Python, as one may be loaded
 * later. */
static int (*ensure)(void);
static void (*release)(int);
static int (*is_finalizing)(void);

/* Threads that search at the same time find the same. */
static int found(void) {
  if (__atomic_load_n((void**)&release, __ATOMIC_ACQUIRE) != NULL) return 1;
  void* finalizing = find("Py_IsFinalizing"); /* since 3.13 */
  if (!finalizing) finalizing = find("_Py_IsFinalizing");
  void *to_ensure = find("PyGILState_Ensure"), *to_release = find("PyGILState_Release");
  if (!to_ensure || !to_release) return 0;
  __atomic_store_n((void**)&is_finalizing, finalizing, __ATOMIC_RELAXED);
  __atomic_store_n((void**)&ensure, to_ensure, __ATOMIC_RELAXED);
  __atomic_store_n((void**)&release, to_release, __ATOMIC_RELEASE);
  return 1;
}

enum { ABSENT = -1 }; /* no state of Python's */

int cdevice_v0_gil_ensure(int* state) {
  *state = ABSENT;
  if (!found()) return 0;
  /* Taking the lock while Python is finalizing ends the thread, or blocks it for ever. */
  if (is_finalizing && is_finalizing()) return -1;
  *state = ensure();
  return 0;
}

void cdevice_v0_gil_release(int state) {
  if (state != ABSENT) release(state);
}
