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

/* Taking the lock while Python is finalizing ends the thread, or blocks it for ever. */
static int finalizing(void) {
  int (*is_finalizing)(void);
  *(void**)&is_finalizing = find("Py_IsFinalizing"); /* since 3.13 */
  if (!is_finalizing) *(void**)&is_finalizing = find("_Py_IsFinalizing");
  return is_finalizing && is_finalizing();
}

int cdevice_v0_gil_ensure(int* state) {
  int (*ensure)(void);
  *(void**)&ensure = find("PyGILState_Ensure");
  if (ensure && finalizing()) return -1;
  *state = ensure ? ensure() : 0;
  return 0;
}

void cdevice_v0_gil_release(int state) {
  void (*release)(int);
  *(void**)&release = find("PyGILState_Release");
  if (release) release(state);
}
