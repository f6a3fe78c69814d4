#include "gil.h"

#include "capi.h"

int python_is_absent(void) { return !PyGILState_Ensure; }

static int is_finalizing(void) {
  if (Py_IsFinalizing) return Py_IsFinalizing();
  return _Py_IsFinalizing && _Py_IsFinalizing();
}

/* Reports whether this thread holds the GIL. PyGILState_Check is true in every thread once there was a
 * subinterpreter. */
static int holds_gil(void) {
  if (PyThreadState_GetUnchecked) return PyThreadState_GetUnchecked() != NULL;
  /* Of this thread since 3.12; before, of whichever thread holds the lock. */
  void* holder = _PyThreadState_UncheckedGet ? _PyThreadState_UncheckedGet() : NULL;
  return holder != NULL && holder == PyGILState_GetThisThreadState();
}

void* python_unlock(void) { return holds_gil() ? PyEval_SaveThread() : NULL; }

void python_lock(void* state) {
  if (state != NULL) PyEval_RestoreThread(state);
}

/* The objects that Go holds are the main interpreter's. PyGILState_Ensure takes the lock of the interpreter that the
 * thread has run last, which is another lock in a subinterpreter with one of its own. */
static int enter_main(struct python_state* state) {
  state->of_main = NULL;
  if (!Py_NewInterpreterFromConfig || PyInterpreterState_Get() == PyInterpreterState_Main()) return 1;
  state->of_main = PyThreadState_New(PyInterpreterState_Main());
  if (state->of_main == NULL) return 0;
  state->of_thread = PyEval_SaveThread();
  PyEval_RestoreThread(state->of_main);
  return 1;
}

static void leave_main(struct python_state* state) {
  if (state->of_main == NULL) return;
  PyThreadState_Clear(state->of_main);
  PyEval_SaveThread();
  PyThreadState_Delete(state->of_main);
  PyEval_RestoreThread(state->of_thread);
}

int python_enter(struct python_state* state) {
  if (python_is_absent() || is_finalizing()) return 0;
  state->gil = PyGILState_Ensure();
  if (!enter_main(state)) {
    PyGILState_Release(state->gil);
    return 0;
  }
  PyErr_Fetch(&state->type, &state->value, &state->traceback);
  return 1;
}

void python_leave(struct python_state* state) {
  PyErr_Restore(state->type, state->value, state->traceback);
  leave_main(state);
  PyGILState_Release(state->gil);
}

PyObject* python_take_exception(void) {
  PyObject *type = NULL, *value = NULL, *traceback = NULL;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != NULL) {
    PyException_SetTraceback(value, traceback);
    Py_DecRef(traceback);
  }
  Py_DecRef(type);
  return value;
}

void python_set_exception(PyObject* exception) {
  PyErr_SetObject(exception->type, exception);
  Py_DecRef(exception);
}

static int raise_pending(void* exception) {
  python_set_exception(exception);
  return -1;
}

void python_raise_later(PyObject* exception) {
  if (Py_AddPendingCall(raise_pending, exception) == 0) return;
  struct python_state state; /* there is no room */
  if (!python_enter(&state)) return;
  python_set_exception(exception);
  PyErr_WriteUnraisable(NULL);
  python_leave(&state);
}

/* Of the main thread, with the GIL. */
static int depth;
static PyObject* interrupt;

void python_begin(void) {
  if (arrowdevice_on_main_thread()) depth++;
}

PyObject* python_end(void) {
  if (!arrowdevice_on_main_thread()) return NULL;
  depth--;
  PyObject* exception = interrupt;
  interrupt = NULL;
  return exception;
}

void python_interrupt(PyObject* exception) {
  if (depth == 0) {
    python_raise_later(exception);
    return;
  }
  Py_DecRef(interrupt);
  interrupt = exception;
}

void arrowdevice_drop_python_object(void* object) {
  struct python_state state;
  if (!python_enter(&state)) return;
  Py_DecRef(object);
  python_leave(&state);
}

int arrowdevice_run_signal_handlers(void) {
  struct python_state state;
  if (!python_enter(&state)) return 0;
  int raised = PyErr_CheckSignals() != 0;
  if (raised) python_interrupt(python_take_exception());
  python_leave(&state);
  return raised;
}

void arrowdevice_call_python_objects(const uintptr_t* objects, size_t count) {
  struct python_state state;
  if (!python_enter(&state)) return;
  for (size_t i = 0; i < count; i++) {
    PyObject* object = (PyObject*)objects[i];
    PyObject* result = PyObject_CallNoArgs(object);
    if (result != NULL)
      Py_DecRef(result);
    else
      PyErr_WriteUnraisable(object);
    Py_DecRef(object);
  }
  python_leave(&state);
}
