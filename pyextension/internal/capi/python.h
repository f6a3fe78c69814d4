/* Python's C functions that this library calls: of its stable ABI of 3.10, declared here because a build needs no
 * Python. They are weak: a program without Python, such as a test, links and never calls them. Nothing of an object is
 * read but its type, which stands where that ABI has it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct python_object {
  intptr_t references;
  void* type;
} PyObject;

typedef intptr_t Py_ssize_t;

/* A function of C as one of Python, by the flag that says how it is called. */
typedef PyObject* (*python_fastcall)(PyObject* self, PyObject* const* arguments, Py_ssize_t count);

struct python_method {
  const char* name;
  union {
    python_fastcall many;
    PyObject* (*one)(PyObject* self, PyObject* argument);
  } function;
  int flags;
  const char* doc;
};

struct python_slot {
  int slot;
  int (*exec)(PyObject* module);
};

struct python_module {
  PyObject object;
  void *init, *index, *copy;
  const char *name, *doc;
  Py_ssize_t size;
  struct python_method* methods;
  struct python_slot* slots;
  void *traverse, *clear, *free;
};

enum { PYTHON_FASTCALL = 0x80, PYTHON_ONE_ARGUMENT = 0x08, PYTHON_NO_ARGUMENTS = 0x04 };
enum { PYTHON_EXEC = 2 }; /* a slot of a module */

/* Flags of types: what their objects are. */
enum {
  PYTHON_INT = 1 << 24,
  PYTHON_LIST = 1 << 25,
  PYTHON_TUPLE = 1 << 26,
  PYTHON_BYTES = 1 << 27,
  PYTHON_STR = 1 << 28,
  PYTHON_DICT = 1 << 29,
};
#define PYTHON_TYPE (1UL << 31)

#define PYTHON(result, name, arguments) extern result name arguments __attribute__((weak))

PYTHON(void, Py_IncRef, (PyObject*));
PYTHON(void, Py_DecRef, (PyObject*));

PYTHON(PyObject*, PyModuleDef_Init, (struct python_module*));
PYTHON(void*, PyModule_GetState, (PyObject*));
PYTHON(int, PyModule_AddFunctions, (PyObject*, struct python_method*));
PYTHON(PyObject*, PyImport_ImportModule, (const char*));
PYTHON(PyObject*, PyCFunction_NewEx, (struct python_method*, PyObject* self, PyObject* module));
PYTHON(void*, PyInterpreterState_Get, (void));
PYTHON(void*, PyInterpreterState_Main, (void));
PYTHON(void, Py_NewInterpreterFromConfig, (void)); /* since 3.12, as subinterpreters with a lock of their own */

PYTHON(PyObject*, PyCapsule_New, (void*, const char*, void (*)(PyObject*)));
PYTHON(void*, PyCapsule_GetPointer, (PyObject*, const char*));
PYTHON(const char*, PyCapsule_GetName, (PyObject*));
PYTHON(int, PyCapsule_SetName, (PyObject*, const char*));
PYTHON(int, PyCapsule_IsValid, (PyObject*, const char*));

PYTHON(void*, PyEval_SaveThread, (void));
PYTHON(void, PyEval_RestoreThread, (void*));
PYTHON(int, PyGILState_Ensure, (void));
PYTHON(void, PyGILState_Release, (int));
PYTHON(void*, PyGILState_GetThisThreadState, (void));
PYTHON(void*, PyThreadState_New, (void* interpreter));
PYTHON(void, PyThreadState_Clear, (void*));
PYTHON(void, PyThreadState_Delete, (void*));
PYTHON(void*, PyThreadState_GetUnchecked, (void)); /* since 3.13 */
PYTHON(void*, _PyThreadState_UncheckedGet, (void));
PYTHON(int, Py_IsFinalizing, (void)); /* since 3.13 */
PYTHON(int, _Py_IsFinalizing, (void));
PYTHON(int, Py_AddPendingCall, (int (*)(void*), void*));

PYTHON(int, PyErr_CheckSignals, (void));
PYTHON(PyObject*, PyErr_Occurred, (void));
PYTHON(void, PyErr_Clear, (void));
PYTHON(int, PyErr_ExceptionMatches, (PyObject*));
PYTHON(PyObject*, PyErr_NoMemory, (void));
PYTHON(PyObject*, PyErr_Format, (PyObject*, const char*, ...));
PYTHON(void, PyErr_SetObject, (PyObject*, PyObject*));
PYTHON(void, PyErr_Fetch, (PyObject**, PyObject**, PyObject**));
PYTHON(void, PyErr_Restore, (PyObject*, PyObject*, PyObject*));
PYTHON(void, PyErr_NormalizeException, (PyObject**, PyObject**, PyObject**));
PYTHON(void, PyErr_WriteUnraisable, (PyObject*));
PYTHON(int, PyException_SetTraceback, (PyObject*, PyObject*));

PYTHON(unsigned long, PyType_GetFlags, (void*));
PYTHON(int, PyType_IsSubtype, (void*, void*));
PYTHON(int, PyObject_IsTrue, (PyObject*));
PYTHON(PyObject*, PyObject_Type, (PyObject*));
PYTHON(PyObject*, PyObject_Str, (PyObject*));
PYTHON(PyObject*, PyObject_GetAttr, (PyObject*, PyObject*));
PYTHON(PyObject*, PyObject_GetAttrString, (PyObject*, const char*));
PYTHON(PyObject*, PyObject_GetIter, (PyObject*));
PYTHON(PyObject*, PyIter_Next, (PyObject*));
PYTHON(PyObject*, PyCallIter_New, (PyObject*, PyObject*));
PYTHON(int, PyCallable_Check, (PyObject*));
PYTHON(PyObject*, PyObject_Call, (PyObject*, PyObject*, PyObject*));
PYTHON(PyObject*, PyObject_CallNoArgs, (PyObject*));
PYTHON(PyObject*, PyObject_CallFunctionObjArgs, (PyObject*, ...));
PYTHON(PyObject*, PyObject_CallMethod, (PyObject*, const char*, const char*, ...));
PYTHON(PyObject*, Py_BuildValue, (const char*, ...));

PYTHON(PyObject*, PyBool_FromLong, (long));
PYTHON(PyObject*, PyLong_FromLongLong, (long long));
PYTHON(PyObject*, PyLong_FromUnsignedLongLong, (unsigned long long));
PYTHON(long long, PyLong_AsLongLongAndOverflow, (PyObject*, int*));
PYTHON(unsigned long long, PyLong_AsUnsignedLongLong, (PyObject*));
PYTHON(PyObject*, PyNumber_Index, (PyObject*));
PYTHON(PyObject*, PyNumber_Float, (PyObject*));
PYTHON(PyObject*, PyFloat_FromDouble, (double));
PYTHON(double, PyFloat_AsDouble, (PyObject*));
PYTHON(PyObject*, PyBytes_FromStringAndSize, (const char*, Py_ssize_t));
PYTHON(PyObject*, PyBytes_FromObject, (PyObject*));
PYTHON(int, PyBytes_AsStringAndSize, (PyObject*, char**, Py_ssize_t*));
PYTHON(const char*, PyUnicode_AsUTF8AndSize, (PyObject*, Py_ssize_t*));
PYTHON(PyObject*, PyUnicode_FromString, (const char*));
PYTHON(PyObject*, PyUnicode_InternFromString, (const char*));
PYTHON(PyObject*, PyUnicode_FromFormat, (const char*, ...));
PYTHON(PyObject*, PyUnicode_DecodeUTF8, (const char*, Py_ssize_t, const char*));
PYTHON(PyObject*, PyUnicode_AsEncodedString, (PyObject*, const char*, const char*));
PYTHON(PyObject*, PyTuple_New, (Py_ssize_t));
PYTHON(Py_ssize_t, PyTuple_Size, (PyObject*));
PYTHON(PyObject*, PyTuple_GetItem, (PyObject*, Py_ssize_t));
PYTHON(PyObject*, PyList_New, (Py_ssize_t));
PYTHON(Py_ssize_t, PyList_Size, (PyObject*));
PYTHON(PyObject*, PyList_GetItem, (PyObject*, Py_ssize_t));
PYTHON(int, PyList_Append, (PyObject*, PyObject*));
PYTHON(PyObject*, PyList_AsTuple, (PyObject*));
PYTHON(PyObject*, PyDict_New, (void));
PYTHON(Py_ssize_t, PyDict_Size, (PyObject*));
PYTHON(int, PyDict_Next, (PyObject*, Py_ssize_t*, PyObject**, PyObject**));
PYTHON(int, PyDict_SetItem, (PyObject*, PyObject*, PyObject*));
PYTHON(int, PyDict_SetItemString, (PyObject*, const char*, PyObject*));
PYTHON(PyObject*, PyDict_GetItemWithError, (PyObject*, PyObject*)); /* borrowed */
PYTHON(PyObject*, PyDict_Copy, (PyObject*));
