/* Python's global interpreter lock, found at run time: nothing links Python. */
#include "bridge.h"

#ifdef _WIN32
int cdevice_v0_gil_ensure(int* state) { return *state = 0; }
void cdevice_v0_gil_release(int state) { (void)state; }
#else
#include <dlfcn.h>

/* Taking the lock while Python is finalizing ends the thread, or blocks it for ever. */
static int finalizing(void) {
  int (*is_finalizing)(void);
  *(void**)&is_finalizing = dlsym(RTLD_DEFAULT, "Py_IsFinalizing"); /* since 3.13 */
  if (!is_finalizing) *(void**)&is_finalizing = dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
  return is_finalizing && is_finalizing();
}

int cdevice_v0_gil_ensure(int* state) {
  int (*ensure)(void);
  *(void**)&ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  if (ensure && finalizing()) return -1;
  *state = ensure ? ensure() : 0;
  return 0;
}

void cdevice_v0_gil_release(int state) {
  void (*release)(int);
  *(void**)&release = dlsym(RTLD_DEFAULT, "PyGILState_Release");
  if (release) release(state);
}
#endif
