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
      {&py.collect, PyUnicode_InternFromString("collect")},
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
  if (!PyCallable_Check(ended)) PyErr_Format(py.type_error, "a callable is wanted for the end of the call");
  if (PyErr_Occurred() || refuse_forked(b)) {
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
  uint64_t* memory = number_of_capsule(call, call_name);
  if (memory == NULL) {
    PyErr_Format(py.type_error, "no call of this library");
    return 0;
  }
  uint64_t number = *memory;
  *memory = 0;
  if (number == 0) PyErr_Format(py.value_error, "the call has ended");
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
  if (count < 1) PyErr_Format(py.type_error, "the name of a function is missing");
  const char* name = count < 1 ? NULL : PyUnicode_AsUTF8AndSize(arguments[0], NULL);
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
  return request_of_builtin(b, &r, arguments + 1, count - 1) ? NULL : begin(b, &r, arguments[0]);
}

/* Functions of Go. They live as long as the process. */

struct function {
  const struct binding* binding;
  struct python_method method;
  PyObject* parameters; /* keep the texts of their names */
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

static void function_free(struct function* f) {
  Py_DecRef(f->parameters);
  free(f->names);
  for (Py_ssize_t i = 0; f->types != NULL && i < f->count; i++) type_free(f->types[i]);
  free(f->types);
  free(f);
}

/* Reads a parameter, a pair of its name and its annotation. Returns -1 with an exception. */
static int parameter_read(struct function* f, Py_ssize_t i) {
  PyObject* pair = PyTuple_GetItem(f->parameters, i);
  if (!is_a(pair, PYTHON_TUPLE) || PyTuple_Size(pair) != 2) {
    PyErr_Format(py.type_error, "parameter %zd is no pair of a name and an annotation", i);
    return -1;
  }
  Py_ssize_t size;
  f->names[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(pair, 0), NULL);
  const char* annotation = f->names[i] ? PyUnicode_AsUTF8AndSize(PyTuple_GetItem(pair, 1), &size) : NULL;
  f->types[i] = annotation ? type_parse(annotation, (size_t)size) : NULL;
  return f->types[i] ? 0 : -1;
}

/* Takes the parameters, a tuple, also if it fails. */
static struct function* function_new(const struct binding* b, const char* name, PyObject* parameters) {
  struct function* f = calloc(1, sizeof *f + strlen(name) + 1);
  if (f == NULL) {
    Py_DecRef(parameters);
    return (void*)PyErr_NoMemory();
  }
  f->binding = b;
  f->parameters = parameters;
  f->count = PyTuple_Size(parameters);
  strcpy(f->name, name);
  f->names = calloc((size_t)f->count + 1, sizeof *f->names);
  f->types = calloc((size_t)f->count + 1, sizeof *f->types);
  int failed = f->names == NULL || f->types == NULL;
  if (failed) PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < f->count && !failed; i++) failed = parameter_read(f, i);
  if (!failed) return f;
  function_free(f);
  return NULL;
}

static PyObject* function_object(const struct binding* b, PyObject* const* arguments, Py_ssize_t count,
                                 python_fastcall called) {
  if (count != 2 || !is_a(arguments[1], PYTHON_LIST))
    return PyErr_Format(py.type_error, "a name and a list of parameters are wanted");
  const char* name = PyUnicode_AsUTF8AndSize(arguments[0], NULL);
  PyObject* parameters = name ? PyList_AsTuple(arguments[1]) : NULL;
  struct function* f = parameters ? function_new(b, name, parameters) : NULL;
  if (f == NULL) return NULL;
  f->method = (struct python_method){f->name, {called}, PYTHON_FASTCALL, NULL};
  PyObject* self = PyCapsule_New(f, function_name, NULL);
  PyObject* made = self ? PyCFunction_NewEx(&f->method, self, NULL) : NULL;
  Py_DecRef(self);
  if (made == NULL) function_free(f);
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

static int check_binding(PyObject* const* arguments, Py_ssize_t count) {
  static const unsigned long kinds[] = {PYTHON_STR, PYTHON_TYPE, 0, PYTHON_DICT, 0, 0, 0, PYTHON_INT}; /* 0: callable */
  int right = count == sizeof kinds / sizeof *kinds;
  for (Py_ssize_t i = 0; i < count && right; i++)
    right = kinds[i] != 0 ? is_a(arguments[i], kinds[i]) : PyCallable_Check(arguments[i]);
  if (!right) PyErr_Format(py.type_error, "arguments of bind are of other types, or of another version");
  return right ? 0 : -1;
}

/* bind(path, Object, wrap, errors, annotate, is_of_handler, column_of, main thread), once, adds all other functions. */
static PyObject* bind(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  struct binding* b = PyModule_GetState(self);
  if (b->path != NULL) return PyErr_Format(py.value_error, "the module was bound before");
  if (check_binding(arguments, count)) return NULL;
  unsigned long long main_thread = PyLong_AsUnsignedLongLong(arguments[7]);
  if (PyErr_Occurred() || PyModule_AddFunctions(self, methods)) return NULL;
  PyObject** members[] = {&b->path,     &b->object_type,   &b->wrap,     &b->errors,
                          &b->annotate, &b->is_of_handler, &b->column_of};
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    *members[i] = arguments[i];
    Py_IncRef(arguments[i]);
  }
  Py_IncRef(self); /* its state lives as long as the process */
  arrowdevice_set_main_thread(main_thread);
  Py_IncRef(py.none);
  return py.none;
}

static int fill_module(PyObject* module) {
  static struct python_method first[] = {{"bind", {bind}, PYTHON_FASTCALL, NULL}, {NULL, {NULL}, 0, NULL}};
  if (PyInterpreterState_Get() != PyInterpreterState_Main()) { /* callbacks on Go's threads run in the main one */
    PyObject* import_error = builtin("ImportError");
    if (import_error != NULL) PyErr_Format(import_error, "cannot be loaded in a subinterpreter");
    return -1;
  }
  return constants_fill() ? -1 : PyModule_AddFunctions(module, first);
}

static struct python_slot slots[] = {{PYTHON_EXEC, fill_module}, {0, NULL}};

static struct python_module definition = {
    {1, NULL}, NULL, NULL, NULL, "arrowdevice_v2", NULL, sizeof(struct binding), NULL, slots, NULL, NULL, NULL,
};

/* What Python looks for in a file that it imports as arrowdevice_v2, where 2 is the version of bind and of all that
 * follows. */
PyObject* PyInit_arrowdevice_v2(void) { return PyModuleDef_Init(&definition); }
