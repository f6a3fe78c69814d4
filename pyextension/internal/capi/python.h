#pragma once

#include <stdint.h>

const char* python_capsule_name(void* capsule);
void* python_capsule_pointer(void* capsule, const char* name);

/* Gives the GIL up if this thread holds it. The result is for python_lock, which takes it again. */
void* python_unlock(void);
void python_lock(void* state);

/* Calls of Python on any thread, also while an exception is propagating there, which is put aside. */
struct python_state {
  int gil;
  void *type, *value, *traceback;
};
/* Returns 0 if Python is absent or is being finalized. */
int python_enter(struct python_state* state);
void python_leave(struct python_state* state);

/* The rest is between python_enter and python_leave, or where the GIL is held without an exception. */

/* Calls a method without arguments. Returns its exception, to be dropped, or NULL. */
void* python_call(void* object, const char* method);
/* Calls a method with an argument, and reports whether the result is true, or an exception, which is dropped. */
int python_ask(void* object, const char* method, void* argument);
/* Takes an exception that cannot be raised here: the main thread raises it with its next instruction, or Python
 * reports it as ignored in an object. */
void python_raise_later(void* exception, void* object, int in_main_thread);
void python_keep(void* object);
void python_drop(void* object);

/* A new capsule, or NULL with an exception. */
void* python_capsule_new(void* pointer, const char* name, void (*destructor)(void*));
/* A new tuple of objects, which it takes, or NULL with an exception. */
void* python_tuple(void* const* objects, int64_t count);
