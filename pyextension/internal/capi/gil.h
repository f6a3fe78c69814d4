/* Python's lock (GIL), exceptions that must wait for the main thread, and the end of the interpreter. */
#pragma once

#include "python.h"

/* Reports whether no Python is in this process, as in tests. */
int python_is_absent(void);

/* Gives the GIL up if this thread holds it. The result is for python_lock, which takes it again. */
void* python_unlock(void);
void python_lock(void* state);

/* Calls of Python on any thread, in the main interpreter, also while an exception is propagating there, which is put
 * aside. */
struct python_state {
  int gil;
  void *of_main, *of_thread; /* states of the thread: for the call, if its own is of another interpreter; its own */
  PyObject *type, *value, *traceback;
};
/* Returns 0 if Python is absent, has no memory, or is being finalized, when other threads must not call it. */
int python_enter(struct python_state* state);
void python_leave(struct python_state* state);

/* The exception that is set, normalized, which is set no longer. */
PyObject* python_take_exception(void);
/* Sets an exception, which it takes. */
void python_set_exception(PyObject* exception);

/* An exception that a signal handler raised in the main thread while Go code called Python there. It is raised where
 * that thread returns to Python: by the call of a function of Go, or, out of a library that reads a stream, by the next
 * instruction. */
void python_interrupt(PyObject* exception);
/* Begin and end what returns to Python on this thread. The interrupt, if there is one, belongs to the caller of the
 * end. */
void python_begin(void);
PyObject* python_end(void);
/* Raises an exception, which it takes, with the main thread's next instruction. */
void python_raise_later(PyObject* exception);
