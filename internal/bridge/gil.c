/* Python's global interpreter lock, found at run time: nothing links Python. */
#include "bridge.h"

#ifdef _WIN32
int cdevice_v0_gil_ensure(void) { return 0; }
void cdevice_v0_gil_release(int state) { (void)state; }
#else
#include <dlfcn.h>

int cdevice_v0_gil_ensure(void) {
  int (*ensure)(void);
  *(void**)&ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
  return ensure ? ensure() : 0;
}

void cdevice_v0_gil_release(int state) {
  void (*release)(int);
  *(void**)&release = dlsym(RTLD_DEFAULT, "PyGILState_Release");
  if (release) release(state);
}
#endif
