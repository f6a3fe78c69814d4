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

int python_enter(struct python_state* state) {
  int (*ensure)(void);
  void (*fetch)(void**, void**, void**);
  LOOKUP(ensure, "PyGILState_Ensure");
  LOOKUP(fetch, "PyErr_Fetch");
  if (!ensure || !fetch || arrowdevice_python_is_finalizing()) return 0;
  state->gil = ensure();
  fetch(&state->type, &state->value, &state->traceback);
  return 1;
}

void python_leave(struct python_state* state) {
  void (*restore)(void*, void*, void*);
  void (*release)(int);
  LOOKUP(restore, "PyErr_Restore");
  LOOKUP(release, "PyGILState_Release");
  restore(state->type, state->value, state->traceback);
  release(state->gil);
}

void python_keep(void* object) {
  void (*increase)(void*);
  LOOKUP(increase, "Py_IncRef");
  increase(object);
}

void python_drop(void* object) {
  void (*decrease)(void*);
  LOOKUP(decrease, "Py_DecRef");
  decrease(object);
}

/* The exception that is set, which is set no longer. */
static void* take_exception(void) {
  void (*fetch)(void**, void**, void**);
  void (*normalize)(void**, void**, void**);
  int (*set_traceback)(void*, void*);
  void *type = NULL, *value = NULL, *traceback = NULL;
  LOOKUP(fetch, "PyErr_Fetch");
  LOOKUP(normalize, "PyErr_NormalizeException");
  LOOKUP(set_traceback, "PyException_SetTraceback");
  fetch(&type, &value, &traceback);
  normalize(&type, &value, &traceback);
  if (traceback != NULL) {
    set_traceback(value, traceback);
    python_drop(traceback);
  }
  python_drop(type);
  return value;
}

void* python_call(void* object, const char* method) {
  void* (*call)(void*, const char*, const char*, ...);
  LOOKUP(call, "PyObject_CallMethod");
  void* result = call(object, method, NULL);
  if (result == NULL) return take_exception();
  python_drop(result);
  return NULL;
}

int python_ask(void* object, const char* method, void* argument) {
  void* (*call)(void*, const char*, const char*, ...);
  int (*is_true)(void*);
  LOOKUP(call, "PyObject_CallMethod");
  LOOKUP(is_true, "PyObject_IsTrue");
  void* result = call(object, method, "(O)", argument);
  if (result == NULL) {
    python_drop(take_exception());
    return 1;
  }
  int answer = is_true(result) != 0;
  python_drop(result);
  return answer;
}

/* Sets an exception, which it takes. */
static void set_exception(void* exception) {
  void* (*type_of)(void*);
  void (*set)(void*, void*);
  LOOKUP(type_of, "PyObject_Type");
  LOOKUP(set, "PyErr_SetObject");
  void* type = type_of(exception);
  set(type, exception);
  python_drop(type);
  python_drop(exception);
}

static int raise_pending(void* exception) {
  set_exception(exception);
  return -1;
}

void python_raise_later(void* exception, void* object, int in_main_thread) {
  int (*add)(int (*)(void*), void*);
  void (*write)(void*);
  LOOKUP(add, "Py_AddPendingCall");
  LOOKUP(write, "PyErr_WriteUnraisable");
  if (in_main_thread && add(raise_pending, exception) == 0) return;
  set_exception(exception);
  write(object);
}

int arrowdevice_run_signal_handlers(void) {
  struct python_state state;
  int (*run)(void);
  LOOKUP(run, "PyErr_CheckSignals");
  if (!run || !python_enter(&state)) return 0;
  int raised = run() != 0;
  if (raised) python_raise_later(take_exception(), NULL, 1);
  python_leave(&state);
  return raised;
}

void* python_capsule_new(void* pointer, const char* name, void (*destructor)(void*)) {
  void* (*new)(void*, const char*, void (*)(void*));
  LOOKUP(new, "PyCapsule_New");
  return new(pointer, name, destructor);
}

void* python_tuple(void* const* objects, int64_t count) {
  void* (*new)(intptr_t);
  int (*set)(void*, intptr_t, void*);
  LOOKUP(new, "PyTuple_New");
  LOOKUP(set, "PyTuple_SetItem");
  void* tuple = new((intptr_t)count);
  for (int64_t i = 0; i < count; i++) {
    if (tuple != NULL)
      set(tuple, (intptr_t)i, objects[i]);
    else
      python_drop(objects[i]);
  }
  return tuple;
}
