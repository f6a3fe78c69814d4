/* The module of Python that this library is. The package arrowdevice loads it as it loads any extension in C, and binds
 * it to its classes; a function of Go is a function of C with arguments by position. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "../../../internal/abi/abi.h"
#include "request.h"

struct constants py;

static PyObject* builtin(const char* name) {
  PyObject* builtins = PyImport_ImportModule("builtins");
  PyObject* found = builtins ? PyObject_GetAttrString(builtins, name) : NULL;
  Py_DecRef(builtins);
  return found;
}

int constants_fill(void) {
  if (py.schema != NULL) return 0;
  const struct {
    PyObject** at;
    PyObject* value;
  } all[] = {
      {&py.none, Py_BuildValue("")},
      {&py.true_, PyBool_FromLong(1)},
      {&py.false_, PyBool_FromLong(0)},
      {&py.float_type, builtin("float")},
      {&py.bool_type, builtin("bool")},
      {&py.bytearray_type, builtin("bytearray")},
      {&py.memoryview_type, builtin("memoryview")},
      {&py.attribute_error, builtin("AttributeError")},
      {&py.value_error, builtin("ValueError")},
      {&py.type_error, builtin("TypeError")},
      {&py.overflow_error, builtin("OverflowError")},
      {&py.runtime_error, builtin("RuntimeError")},
      {&py.unicode_error, builtin("UnicodeError")},
      {&py.owner, PyUnicode_InternFromString("_owner")},
      {&py.shape, PyUnicode_InternFromString("shape")},
      {&py.item, PyUnicode_InternFromString("item")},
      {&py.index, PyUnicode_InternFromString("__index__")},
      {&py.float_, PyUnicode_InternFromString("__float__")},
      {&py.iter, PyUnicode_InternFromString("__iter__")},
      {&py.schema, PyUnicode_InternFromString("schema")},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    *all[i].at = all[i].value;
    if (all[i].value == NULL) {
      py.schema = NULL;
      return -1;
    }
  }
  PyObject* capsule = protocols_fill() ? NULL : capsule_of_call(0);
  if (capsule == NULL) return -1;
  py.capsule_type = capsule->type;
  Py_IncRef(py.capsule_type);
  Py_DecRef(capsule);
  return 0;
}

PyObject* get_optional(PyObject* object, PyObject* name) {
  PyObject* attribute = PyObject_GetAttr(object, name);
  if (attribute == NULL && PyErr_ExceptionMatches(py.attribute_error)) PyErr_Clear();
  return attribute;
}

/* A slice of waiting, after which the handlers of signals run: in the main thread only. */
enum { MAIN_SLICE = 50 * 1000 * 1000 };

static int refuse_forked(const struct binding* b) {
  if (!arrowdevice_forked()) return 0;
  PyErr_Format(
      py.runtime_error,
      "%U: loaded before this process was forked, and no Go runtime survives a fork: use "
      "multiprocessing.get_context(\"spawn\"), or \"forkserver\" after multiprocessing.set_forkserver_preload([]), or load the "
      "library in the child only",
      b->path);
  return -1;
}

static struct arrowdevice_reply* reply_begin(struct arrowdevice_reply* reply) {
  reply->data = reply->first;
  reply->size = sizeof reply->first;
  return reply;
}

/* Calls Go with a request, and waits. NULL with an exception. */
static PyObject* perform(const struct binding* b, struct request* r) {
  struct arrowdevice_reply reply;
  if (refuse_forked(b)) { /* perhaps by code of an argument */
    request_end(r);
    return NULL;
  }
  arrowdevice_keep_signal_stacks();
  request_commit(r);
  python_begin();
  void* state = PyEval_SaveThread();
  int64_t number = arrowdevice_go_call(r->data, r->size, arrowdevice_this_thread(), arrowdevice_on_main_thread(),
                                       MAIN_SLICE, NULL, reply_begin(&reply));
  PyEval_RestoreThread(state);
  request_end(r);
  while (number > 0 && PyErr_CheckSignals() == 0) {
    state = PyEval_SaveThread();
    number = arrowdevice_go_wait(number, MAIN_SLICE, &reply);
    PyEval_RestoreThread(state);
  }
  PyObject* interrupt = python_end();
  if (number > 0) {
    state = PyEval_SaveThread();
    arrowdevice_cancel((uint64_t)number);
    PyEval_RestoreThread(state);
    Py_DecRef(interrupt);
    return NULL;
  }
  PyObject* result = reply_decode(b, &reply);
  if (interrupt == NULL) return result;
  Py_DecRef(result);
  PyErr_Clear();
  python_set_exception(interrupt);
  return NULL;
}

/* Begins a call, which calls ended() on a thread of Go once it has ended. The result is a capsule of the call, which
 * cancels it when it is destroyed, so that an exception of a signal handler cannot lose it. NULL with an exception. */
static PyObject* begin(const struct binding* b, struct request* r, PyObject* ended) {
  struct arrowdevice_reply reply;
  if (refuse_forked(b)) {
    request_end(r);
    return NULL;
  }
  arrowdevice_keep_signal_stacks();
  request_commit(r);
  Py_IncRef(ended); /* Go's */
  void* state = PyEval_SaveThread();
  int64_t number = arrowdevice_go_call(r->data, r->size, arrowdevice_this_thread(), 0, 0, ended, reply_begin(&reply));
  PyEval_RestoreThread(state);
  request_end(r);
  if (number == 0) return reply_decode(b, &reply);
  PyObject* call = capsule_of_call((uint64_t)number);
  if (call == NULL) arrowdevice_cancel((uint64_t)number);
  return call;
}

/* The number of a call that has not been finished or cancelled, which is so from now on; 0 with an exception. */
static uint64_t take_call(PyObject* call) {
  uint64_t* memory = PyCapsule_GetPointer(call, call_name);
  uint64_t number = memory ? *memory : 0;
  if (memory != NULL) *memory = 0;
  if (memory != NULL && number == 0) PyErr_Format(py.runtime_error, "the call has ended");
  return number;
}

/* finish(call): the result of a call that has ended. */
static PyObject* finish(PyObject* self, PyObject* call) {
  struct arrowdevice_reply reply;
  if (refuse_forked(PyModule_GetState(self))) return NULL;
  uint64_t number = take_call(call);
  if (number == 0) return NULL;
  void* state = PyEval_SaveThread();
  arrowdevice_go_wait((int64_t)number, -1, reply_begin(&reply));
  PyEval_RestoreThread(state);
  return reply_decode(PyModule_GetState(self), &reply);
}

/* cancel(call): ends the context of a call, and drops its result. */
static PyObject* cancel(PyObject* self, PyObject* call) {
  (void)self;
  uint64_t number = take_call(call);
  if (number == 0) return NULL;
  void* state = PyEval_SaveThread();
  arrowdevice_cancel(number);
  PyEval_RestoreThread(state);
  Py_IncRef(py.none);
  return py.none;
}

static int request_of_builtin(const struct binding* b, struct request* r, PyObject* const* arguments,
                              Py_ssize_t count) {
  static const struct type any = {ANY, NULL};
  const char* name = count > 0 ? PyUnicode_AsUTF8AndSize(arguments[0], NULL) : "";
  if (name == NULL) return -1;
  request_begin(r, b);
  int failed = request_name(r, name, (size_t)count - 1);
  for (Py_ssize_t i = 1; i < count && !failed; i++) failed = request_add(r, &any, "", arguments[i]);
  if (failed) request_end(r);
  return failed ? -1 : 0;
}

/* ask(name, *arguments): a built-in function of Go. */
static PyObject* ask(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const struct binding* b = PyModule_GetState(self);
  struct request r;
  return request_of_builtin(b, &r, arguments, count) ? NULL : perform(b, &r);
}

/* begin_ask(ended, name, *arguments): begins a call of a built-in function, as begin does. */
static PyObject* begin_ask(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const struct binding* b = PyModule_GetState(self);
  struct request r;
  if (count < 1) return PyErr_Format(py.type_error, "no arguments");
  return request_of_builtin(b, &r, arguments + 1, count - 1) ? NULL : begin(b, &r, arguments[0]);
}

/* Functions of Go. They live as long as the process. */

struct function {
  const struct binding* binding;
  struct python_method method;
  Py_ssize_t count;
  const char** names; /* of parameters */
  struct type** types;
  char name[];
};

static const char function_name[] = "arrowdevice_function";

static int request_of(const struct function* f, struct request* r, PyObject* const* arguments, Py_ssize_t count) {
  request_begin(r, f->binding);
  r->function = f->name;
  int failed = request_name(r, f->name, (size_t)count);
  for (Py_ssize_t i = 0; i < count && !failed; i++) failed = request_add(r, f->types[i], f->names[i], arguments[i]);
  if (failed) request_end(r);
  return failed ? -1 : 0;
}

static PyObject* call_function(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const struct function* f = PyCapsule_GetPointer(self, function_name);
  struct request r;
  if (f == NULL || count != f->count) return PyErr_Format(py.type_error, "%zd arguments", count);
  return request_of(f, &r, arguments, count) ? NULL : perform(f->binding, &r);
}

/* begin(ended, *arguments). */
static PyObject* begin_function(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  const struct function* f = PyCapsule_GetPointer(self, function_name);
  struct request r;
  if (f == NULL || count != f->count + 1) return PyErr_Format(py.type_error, "%zd arguments", count - 1);
  if (request_of(f, &r, arguments + 1, count - 1)) return NULL;
  return begin(f->binding, &r, arguments[0]);
}

static struct function* function_new(const struct binding* b, PyObject* name, PyObject* parameters) {
  const char* text = PyUnicode_AsUTF8AndSize(name, NULL);
  Py_ssize_t count = text ? PyList_Size(parameters) : -1;
  if (count < 0) return NULL;
  struct function* f = calloc(1, sizeof *f + strlen(text) + 1);
  if (f != NULL) f->names = calloc((size_t)count + 1, sizeof *f->names);
  if (f != NULL) f->types = calloc((size_t)count + 1, sizeof *f->types);
  if (f == NULL || f->names == NULL || f->types == NULL) return (void*)PyErr_NoMemory();
  f->binding = b;
  f->count = count;
  strcpy(f->name, text);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* pair = PyList_GetItem(parameters, i);
    Py_ssize_t size;
    const char* parameter = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(pair, 0), NULL);
    const char* annotation = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(pair, 1), &size);
    if (parameter == NULL || annotation == NULL) return NULL;
    f->names[i] = strdup(parameter);
    f->types[i] = type_parse(annotation, (size_t)size);
    if (f->types[i] == NULL) return NULL;
  }
  return f;
}

static PyObject* function_object(const struct binding* b, PyObject* const* arguments, Py_ssize_t count,
                                 python_fastcall called) {
  if (count != 2) return PyErr_Format(py.type_error, "%zd arguments", count);
  struct function* f = function_new(b, arguments[0], arguments[1]);
  if (f == NULL) return NULL;
  f->method = (struct python_method){f->name, {called}, PYTHON_FASTCALL, NULL};
  PyObject* self = PyCapsule_New(f, function_name, NULL);
  PyObject* made = self ? PyCFunction_NewEx(&f->method, self, NULL) : NULL;
  Py_DecRef(self);
  return made;
}

/* function(name, parameters): a function of Go, with pairs of the names and annotations of its parameters. */
static PyObject* function(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return function_object(PyModule_GetState(self), arguments, count, call_function);
}

/* beginner(name, parameters): begin of the same function. */
static PyObject* beginner(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return function_object(PyModule_GetState(self), arguments, count, begin_function);
}

/* bind(path, Object, wrap, errors, annotate, is_of_handler, column_of, main thread), once, before all others. */
static PyObject* bind(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  struct binding* b = PyModule_GetState(self);
  if (count != 8) return PyErr_Format(py.type_error, "%zd arguments", count);
  PyObject** members[] = {&b->path,     &b->object_type,   &b->wrap,     &b->errors,
                          &b->annotate, &b->is_of_handler, &b->column_of};
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    *members[i] = arguments[i];
    Py_IncRef(arguments[i]);
  }
  arrowdevice_set_main_thread(PyLong_AsUnsignedLongLong(arguments[7]));
  Py_IncRef(py.none);
  return py.none;
}

/* count_fields(capsule): the number of fields of a schema, which stays the capsule's. */
static PyObject* count_fields(PyObject* self, PyObject* capsule) {
  (void)self;
  if (!PyCapsule_IsValid(capsule, "arrow_schema"))
    return PyErr_Format(py.type_error, "requested_schema is no capsule with the name 'arrow_schema'");
  const struct ArrowSchema* schema = PyCapsule_GetPointer(capsule, "arrow_schema");
  if (schema->release == NULL) return PyErr_Format(py.value_error, "requested_schema was consumed or released before");
  return PyLong_FromLongLong(schema->n_children);
}

static PyObject* sources(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return PyLong_FromLongLong(arrowdevice_sources());
}

static struct python_method methods[] = {
    {"bind", {bind}, PYTHON_FASTCALL, NULL},
    {"ask", {ask}, PYTHON_FASTCALL, NULL},
    {"begin_ask", {begin_ask}, PYTHON_FASTCALL, NULL},
    {"function", {function}, PYTHON_FASTCALL, NULL},
    {"beginner", {beginner}, PYTHON_FASTCALL, NULL},
    {"finish", {.one = finish}, PYTHON_ONE_ARGUMENT, NULL},
    {"cancel", {.one = cancel}, PYTHON_ONE_ARGUMENT, NULL},
    {"count_fields", {.one = count_fields}, PYTHON_ONE_ARGUMENT, NULL},
    {"sources", {.one = sources}, PYTHON_NO_ARGUMENTS, NULL},
    {NULL, {NULL}, 0, NULL},
};

static int fill_module(PyObject* module) {
  (void)module;
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) { /* callbacks on Go's threads run in the main one */
    PyObject* import_error = builtin("ImportError");
    if (import_error != NULL) PyErr_Format(import_error, "cannot be loaded in a subinterpreter");
    return -1;
  }
  return constants_fill();
}

static struct python_slot slots[] = {{PYTHON_EXEC, fill_module}, {0, NULL}};

static struct python_module definition = {
    {1, NULL}, NULL, NULL, NULL, "arrowdevice_v2", NULL, sizeof(struct binding), methods, slots, NULL, NULL, NULL,
};

/* What Python looks for in a file that it imports as arrowdevice_v2, where 2 is the version of bind and of all that
 * follows. */
PyObject* PyInit_arrowdevice_v2(void) { return PyModuleDef_Init(&definition); }
