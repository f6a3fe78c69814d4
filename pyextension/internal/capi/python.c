/* Functions of the Python in this process, looked up at run time: nothing links Python. */
#include "python.h"

#include <dlfcn.h>
#include <stddef.h>

#include "capi.h"

/* dlsym returns void*, which C does not convert to a function pointer. */
#define LOOKUP(pointer, name) (*(void**)&(pointer) = dlsym(RTLD_DEFAULT, name))

const char* python_capsule_name(void* capsule) {
  const char* (*get_name)(void*);
  LOOKUP(get_name, "PyCapsule_GetName");
  return get_name ? get_name(capsule) : NULL;
}

void* python_capsule_pointer(void* capsule, const char* name) {
  void* (*get_pointer)(void*, const char*);
  LOOKUP(get_pointer, "PyCapsule_GetPointer");
  return get_pointer ? get_pointer(capsule, name) : NULL;
}

int arrowdevice_python_is_finalizing(void) {
  int (*is_finalizing)(void);
  LOOKUP(is_finalizing, "Py_IsFinalizing"); /* since 3.13 */
  if (!is_finalizing) LOOKUP(is_finalizing, "_Py_IsFinalizing");
  return is_finalizing && is_finalizing();
}

void arrowdevice_drop_python_object(void* object) {
  int (*ensure)(void);
  void (*release)(int);
  void (*drop)(void*);
  LOOKUP(ensure, "PyGILState_Ensure");
  LOOKUP(release, "PyGILState_Release");
  LOOKUP(drop, "Py_DecRef");
  if (!ensure || !release || !drop || arrowdevice_python_is_finalizing()) return;
  int state = ensure();
  drop(object);
  release(state);
}

/* Reports whether this thread holds the GIL (in a free-threaded Python: is attached). */
static int holds_gil(void) {
  void* (*current)(void);
  LOOKUP(current, "PyThreadState_GetUnchecked"); /* since 3.13 */
  if (current) return current() != NULL;
  /* Of this thread since 3.12; before, of whichever thread holds the lock, so that it answers only
   * together with PyGILState_Check. */
  LOOKUP(current, "_PyThreadState_UncheckedGet");
  if (current && current() == NULL) return 0;
  int (*check)(void);
  LOOKUP(check, "PyGILState_Check");
  return check && check();
}

void* python_unlock(void) {
  void* (*save)(void);
  if (!holds_gil()) return NULL;
  LOOKUP(save, "PyEval_SaveThread");
  return save ? save() : NULL;
}

void python_lock(void* state) {
  void (*restore)(void*);
  if (state == NULL) return;
  LOOKUP(restore, "PyEval_RestoreThread");
  restore(state);
}
