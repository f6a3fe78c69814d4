/* Requests: arguments of Python as bytes that Go reads. pyextension/wire.go has the format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../internal/abi/abi.h"
#include "gil.h"
#include "module.h"

void objects_begin(struct objects* all) {
  all->at = all->first;
  all->count = 0;
  all->room = sizeof all->first / sizeof *all->first;
}

int objects_add(struct objects* all, PyObject* object) {
  if (all->count == all->room) {
    size_t room = 2 * all->room;
    PyObject** at = malloc(room * sizeof *at);
    if (at == NULL) {
      Py_DecRef(object);
      PyErr_NoMemory();
      return -1;
    }
    memcpy(at, all->at, all->count * sizeof *at);
    if (all->at != all->first) free(all->at);
    all->at = at;
    all->room = room;
  }
  all->at[all->count++] = object;
  return 0;
}

void objects_drop(struct objects* all) {
  while (all->count > 0) Py_DecRef(all->at[--all->count]);
  if (all->at != all->first) free(all->at);
  all->at = all->first;
}

void request_begin(struct request* r, const struct binding* binding) {
  r->data = r->first;
  r->size = 0;
  r->room = sizeof r->first;
  r->binding = binding;
  objects_begin(&r->kept);
  objects_begin(&r->consumed);
  objects_begin(&r->owners);
  r->sources = NULL;
  r->source_count = 0;
  r->function = r->argument = "";
  r->refused = 0;
}

static const char used[] = "used_"; /* before the name of a capsule whose tensor was consumed */

void request_commit(struct request* r) {
  for (size_t i = 0; i < r->consumed.count; i++) {
    const char* name = PyCapsule_GetName(r->consumed.at[i]);
    PyCapsule_SetName(r->consumed.at[i], strcmp(name, "dltensor") == 0 ? "used_dltensor" : "used_dltensor_versioned");
  }
  r->owners.count = 0; /* their references are Go's, and so are the sources */
  r->source_count = 0;
}

void request_end(struct request* r) {
  objects_drop(&r->kept);
  objects_drop(&r->consumed);
  objects_drop(&r->owners);
  while (r->source_count > 0) source_free(r->sources[--r->source_count]);
  free(r->sources);
  if (r->data != r->first) free(r->data);
}

/* Where a value is inside an argument: an index of a list or a key of a dict. */
struct path {
  const struct path* outer; /* NULL for the argument itself */
  Py_ssize_t index;
  PyObject* key; /* NULL for an index */
};

static PyObject* path_text(const struct path* path) {
  if (path == NULL) return PyUnicode_FromString("");
  PyObject* outer = path_text(path->outer);
  if (outer == NULL) return NULL;
  PyObject* text = path->key ? PyUnicode_FromFormat("%U[%R]", outer, path->key)
                             : PyUnicode_FromFormat("%U[%zd]", outer, path->index);
  Py_DecRef(outer);
  return text;
}

/* Sets an exception that names the argument. Takes the text. */
static int refuse(struct request* r, const struct path* path, PyObject* kind, PyObject* text) {
  PyObject* at = text ? path_text(path) : NULL;
  if (at != NULL && r->argument[0] == '\0')
    PyErr_Format(kind, "%U", text);
  else if (at != NULL && r->function[0] == '\0')
    PyErr_Format(kind, "%s%U: %U", r->argument, at, text);
  else if (at != NULL)
    PyErr_Format(kind, "%s: argument %s%U: %U", r->function, r->argument, at, text);
  if (at != NULL) Py_DecRef(at);
  if (text != NULL) Py_DecRef(text);
  r->refused = 1;
  return -1;
}

static int put(struct request* r, const void* data, size_t size) {
  if (r->room - r->size < size) {
    size_t room = 2 * r->room + size;
    uint8_t* grown = malloc(room);
    if (grown == NULL) {
      PyErr_NoMemory();
      return -1;
    }
    memcpy(grown, r->data, r->size);
    if (r->data != r->first) free(r->data);
    r->data = grown;
    r->room = room;
  }
  memcpy(r->data + r->size, data, size);
  r->size += size;
  return 0;
}

/* Numbers are little endian, as every processor is that has a Go with cgo and this library. */
static int put_number(struct request* r, char letter, const void* number, size_t size) {
  uint8_t all[9] = {(uint8_t)letter};
  memcpy(all + 1, number, size);
  return put(r, all, 1 + size);
}

static int put_count(struct request* r, char letter, Py_ssize_t count) {
  uint32_t n = (uint32_t)count;
  return put_number(r, letter, &n, sizeof n);
}

static int put_signed(struct request* r, int64_t number) { return put(r, &number, sizeof number); }

static int put_form(struct request* r, uint8_t form, uint64_t first) {
  uint8_t all[10] = {'A', form};
  memcpy(all + 2, &first, sizeof first);
  return put(r, all, sizeof all);
}

int request_name(struct request* r, const char* name, size_t arguments) {
  size_t size = strlen(name);
  return put_count(r, 'L', (Py_ssize_t)arguments + 1) || put_count(r, 'S', (Py_ssize_t)size) || put(r, name, size) ? -1
                                                                                                                   : 0;
}

static const char* type_name(PyObject* value) {
  PyObject* name = PyObject_GetAttrString(value->type, "__name__");
  const char* text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  static char copy[200]; /* under the GIL, and read before it is given up */
  snprintf(copy, sizeof copy, "%s", text ? text : "?");
  if (name != NULL) Py_DecRef(name);
  PyErr_Clear();
  return copy;
}

/* What is given, in the words of an error. */
static PyObject* name_of(PyObject* value) {
  if (!is_a(value, PYTHON_TYPE)) return PyUnicode_FromString(type_name(value));
  PyObject* name = PyObject_GetAttrString(value, "__name__");
  PyObject* text = name ? PyUnicode_FromFormat("the class %U", name) : NULL;
  if (name != NULL) Py_DecRef(name);
  return text;
}

static int refuse_kind(struct request* r, const struct path* path, const char* wanted, PyObject* value,
                       const char* rest) {
  PyObject* name = name_of(value);
  PyObject* text = name ? PyUnicode_FromFormat("%s is wanted, not %U%s", wanted, name, rest) : NULL;
  if (name != NULL) Py_DecRef(name);
  return refuse(r, path, py.type_error, text);
}

/* Values that are no Arrow objects. */

static int put_text(struct request* r, const struct path* path, char letter, PyObject* value) {
  Py_ssize_t size;
  const char* text = PyUnicode_AsUTF8AndSize(value, &size);
  if (text == NULL) {
    if (!PyErr_ExceptionMatches(py.unicode_error)) return -1;
    PyObject* error = python_take_exception();
    int refused = refuse(r, path, py.value_error, PyUnicode_FromFormat("cannot be encoded as UTF-8: %S", error));
    Py_DecRef(error);
    return refused;
  }
  if ((uint64_t)size > UINT32_MAX)
    return refuse(r, path, py.overflow_error, PyUnicode_FromFormat("%zd bytes are too long", size));
  uint32_t n = (uint32_t)size;
  if (letter != 0 ? put_number(r, letter, &n, sizeof n) : put(r, &n, sizeof n)) return -1;
  return put(r, text, (size_t)size);
}

static int put_bytes(struct request* r, const struct path* path, PyObject* value) {
  PyObject* bytes = PyBytes_FromObject(value);
  char* data;
  Py_ssize_t size;
  if (bytes == NULL || PyBytes_AsStringAndSize(bytes, &data, &size)) return -1;
  int failed;
  if ((uint64_t)size > UINT32_MAX)
    failed = refuse(r, path, py.overflow_error, PyUnicode_FromFormat("%zd bytes are too long", size));
  else
    failed = put_count(r, 'B', size) || put(r, data, (size_t)size);
  Py_DecRef(bytes);
  return failed ? -1 : 0;
}

static int put_int(struct request* r, const struct path* path, PyObject* value) {
  int overflow;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (number == -1 && !overflow && PyErr_Occurred()) return -1;
  if (!overflow) return put_number(r, 'I', &number, sizeof number);
  unsigned long long large = overflow > 0 ? PyLong_AsUnsignedLongLong(value) : 0;
  if (overflow > 0 && !PyErr_Occurred()) return put_number(r, 'U', &large, sizeof large);
  PyErr_Clear();
  PyObject* bits = PyObject_CallMethod(value, "bit_length", NULL);
  long long length = bits ? PyLong_AsLongLongAndOverflow(bits, &overflow) : -1;
  if (bits == NULL) return -1;
  Py_DecRef(bits);
  /* Python refuses to print a number of thousands of digits. */
  PyObject* text = length <= 128 ? PyUnicode_FromFormat("%S does not fit into 64 bits", value)
                                 : PyUnicode_FromFormat("an int of %lld bits does not fit into 64 bits", length);
  return refuse(r, path, py.overflow_error, text);
}

static int put_float(struct request* r, PyObject* value) {
  double number = PyFloat_AsDouble(value);
  if (number == -1 && PyErr_Occurred()) return -1;
  return put_number(r, 'D', &number, sizeof number);
}

static int is_empty_tuple(PyObject* value) { return is_a(value, PYTHON_TUPLE) && PyTuple_Size(value) == 0; }

/* 1 for an array without dimensions, such as a scalar of NumPy, 0 for an array with some, -1 for what is no array. */
static int array_without_dimensions(PyObject* value) {
  PyObject* shape = get_optional(value, py.shape);
  if (shape == NULL) {
    PyErr_Clear();
    return -1;
  }
  int empty = is_empty_tuple(shape);
  Py_DecRef(shape);
  return empty;
}

static int put_value(struct request* r, const struct path* path, const struct type* element, PyObject* value);

static const struct type scalar_type = {SCALAR, NULL}, any_type = {ANY, NULL};

static int put_list(struct request* r, const struct path* path, const struct type* element, PyObject* value) {
  int list = is_a(value, PYTHON_LIST);
  Py_ssize_t count = list ? PyList_Size(value) : PyTuple_Size(value);
  if (put_count(r, 'L', count)) return -1;
  for (Py_ssize_t i = 0; i < count; i++) {
    struct path inner = {path, i, NULL};
    if (list && PyList_Size(value) != count) { /* code of an element has changed it */
      return refuse(r, path, py.value_error, PyUnicode_FromString("the list was changed while it was read"));
    }
    PyObject* item = list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
    Py_IncRef(item);
    int failed = put_value(r, &inner, element, item);
    Py_DecRef(item);
    if (failed) return -1;
  }
  return 0;
}

static int put_dict(struct request* r, const struct path* path, const struct type* element, PyObject* value) {
  PyObject* copy = PyDict_Copy(value); /* code of a value may change it */
  if (copy == NULL) return -1;
  PyObject *key, *item;
  Py_ssize_t at = 0;
  int failed = put_count(r, 'M', PyDict_Size(copy));
  while (!failed && PyDict_Next(copy, &at, &key, &item)) {
    struct path inner = {path, 0, key};
    if (!is_a(key, PYTHON_STR))
      failed =
          refuse(r, path, py.type_error, PyUnicode_FromFormat("keys of a dict must be str, not %s", type_name(key)));
    else
      failed = put_text(r, path, 0, key) || put_value(r, &inner, element, item);
  }
  Py_DecRef(copy);
  return failed ? -1 : 0;
}

static int unsupported(struct request* r, const struct path* path, PyObject* value) {
  return refuse(r, path, py.type_error, PyUnicode_FromFormat("unsupported type %s", type_name(value)));
}

static int is_bytes(PyObject* value) {
  return is_a(value, PYTHON_BYTES) || PyType_IsSubtype(value->type, py.bytearray_type) ||
         value->type == (void*)py.memoryview_type;
}

/* A value by its own type, with elements of a type. */
static int put_plain(struct request* r, const struct path* path, const struct type* element, PyObject* value) {
  if (value == py.none) return put(r, "N", 1);
  if (value == py.true_) return put(r, "T", 1);
  if (value == py.false_) return put(r, "F", 1);
  if (is_a(value, PYTHON_STR)) return put_text(r, path, 'S', value);
  if (is_a(value, PYTHON_INT)) return put_int(r, path, value);
  if (PyType_IsSubtype(value->type, py.float_type)) return put_float(r, value);
  if (is_bytes(value)) return put_bytes(r, path, value);
  if (is_a(value, PYTHON_LIST | PYTHON_TUPLE)) return put_list(r, path, element, value);
  if (is_a(value, PYTHON_DICT)) return put_dict(r, path, element, value);
  return 1;
}

/* What a scalar of NumPy holds, or NULL without an exception for another value. */
static PyObject* item_of(PyObject* value) {
  if (array_without_dimensions(value) != 1) return NULL;
  PyObject* method = get_optional(value, py.item);
  if (method == NULL) return NULL;
  PyObject* item = PyObject_CallNoArgs(method);
  Py_DecRef(method);
  return item;
}

/* A value that Go checks: a number, a text, or what is like one. */
static int put_scalar(struct request* r, const struct path* path, PyObject* value) {
  int done = put_plain(r, path, &scalar_type, value);
  if (done <= 0) return done;
  PyObject* item = item_of(value);
  if (item == NULL && PyErr_Occurred()) return -1;
  if (item != NULL) {
    done = put_plain(r, path, &scalar_type, item);
    Py_DecRef(item);
    return done > 0 ? unsupported(r, path, value) : done;
  }
  if (array_without_dimensions(value) == 0)
    return unsupported(r, path, value); /* arrays of NumPy have an __index__ that raises */
  PyObject* has = get_optional(value, py.index);
  if (has == NULL) return PyErr_Occurred() ? -1 : unsupported(r, path, value);
  Py_DecRef(has);
  PyObject* number = PyNumber_Index(value);
  if (number == NULL) return -1;
  done = put_int(r, path, number);
  Py_DecRef(number);
  return done;
}

/* Other numbers are asked for a float. Go refuses a bool, also NumPy's. */
static int put_number_as_float(struct request* r, const struct path* path, PyObject* value) {
  if (is_a(value, PYTHON_INT | PYTHON_STR) || PyType_IsSubtype(value->type, py.float_type))
    return put_scalar(r, path, value);
  if (array_without_dimensions(value) == 0) return refuse_kind(r, path, "float", value, "");
  PyObject* has = get_optional(value, py.float_);
  if (has == NULL) return PyErr_Occurred() ? -1 : put_scalar(r, path, value);
  Py_DecRef(has);
  PyObject* item = item_of(value);
  if (item == NULL && PyErr_Occurred()) return -1;
  int is_bool = item != NULL && item->type == (void*)py.bool_type;
  if (item != NULL) Py_DecRef(item);
  if (is_bool) return put_scalar(r, path, value);
  PyObject* number = PyNumber_Float(value);
  if (number == NULL) return -1;
  int failed = put_float(r, number);
  Py_DecRef(number);
  return failed;
}

/* Arrow objects. */

enum form {
  OBJECT = 1,
  DEVICE_ARRAY,
  PLAIN_ARRAY,
  DEVICE_STREAM,
  PLAIN_STREAM,
  TENSOR,
  LEGACY_TENSOR,
  CUDA_ARRAY,
  SCHEMA_STRUCT,
  ITERABLE
};
enum { OF_COLUMN = 0x80 }; /* in the form of a stream: it has the chunks of a column */

/* An object of this library. Returns 1 for another one. */
static int put_own(struct request* r, const struct path* path, PyObject* value) {
  if (PyObject_IsInstance(value, r->binding->object_type) != 1) {
    PyErr_Clear();
    return 1;
  }
  PyObject* owner = PyObject_GetAttr(value, py.owner);
  if (owner == NULL) return -1;
  if (owner == py.none) {
    Py_DecRef(owner);
    return refuse(r, path, py.value_error, PyUnicode_FromFormat("the %s is closed", type_name(value)));
  }
  if (!PyCapsule_IsValid(owner, handle_name) || PyCapsule_GetName(owner) != handle_name) { /* of another library */
    Py_DecRef(owner);
    return 1;
  }
  const uint64_t* handle = PyCapsule_GetPointer(owner, handle_name);
  if (objects_add(&r->kept, owner)) return -1;
  return put_form(r, OBJECT, *handle);
}

/* The pointer of a capsule that a method returned, which is kept. NULL with an exception. */
static void* capsule_pointer(struct request* r, const struct path* path, PyObject* capsule, const char* name,
                             const char* method) {
  if (PyCapsule_IsValid(capsule, name)) {
    void* pointer = PyCapsule_GetPointer(capsule, name);
    Py_IncRef(capsule);
    return objects_add(&r->kept, capsule) ? NULL : pointer;
  }
  if (!PyType_IsSubtype(capsule->type, py.capsule_type)) {
    refuse(r, path, py.type_error,
           PyUnicode_FromFormat("%s returned %s, not a capsule %s", method, type_name(capsule), name));
    return NULL;
  }
  const char* named = PyCapsule_GetName(capsule);
  PyErr_Clear();
  refuse(r, path, py.value_error,
         PyUnicode_FromFormat("%s returned a capsule with the name '%s', not '%s'%s", method, named ? named : "", name,
                              named && strncmp(named, used, strlen(used)) == 0 ? ": it was consumed before" : ""));
  return NULL;
}

/* Each of these encodes what a method of a protocol has returned. */

static int put_pair(struct request* r, const struct path* path, enum form form, const char* name, const char* method,
                    PyObject* pair) {
  int tuple = is_a(pair, PYTHON_TUPLE), list = is_a(pair, PYTHON_LIST);
  if ((!tuple && !list) || (tuple ? PyTuple_Size(pair) : PyList_Size(pair)) != 2)
    return refuse(r, path, py.type_error,
                  PyUnicode_FromFormat("%s returned %s, not 2 capsules", method, type_name(pair)));
  PyObject* schema = tuple ? PyTuple_GetItem(pair, 0) : PyList_GetItem(pair, 0);
  PyObject* array = tuple ? PyTuple_GetItem(pair, 1) : PyList_GetItem(pair, 1);
  void* first = capsule_pointer(r, path, schema, "arrow_schema", method);
  void* second = first ? capsule_pointer(r, path, array, name, method) : NULL;
  if (second == NULL) return -1;
  return put_form(r, form, (uintptr_t)first) || put_signed(r, (int64_t)(uintptr_t)second) ? -1 : 0;
}

/* Reports whether the schema of a stream is that of a column. A stream that fails does so again when Go asks it. */
#define DEFINE(KIND, STREAM)                                                \
  static int KIND##_is_column(struct STREAM* stream) {                      \
    struct ArrowSchema schema = {0};                                        \
    if (stream->release == NULL || stream->get_schema == NULL) return 0;    \
    void* state = PyEval_SaveThread();                                      \
    int code = stream->get_schema(stream, &schema);                         \
    int column = code == 0 && schema.format && strcmp(schema.format, "+s"); \
    if (code == 0 && schema.release != NULL) schema.release(&schema);       \
    PyEval_RestoreThread(state);                                            \
    return column;                                                          \
  }

DEFINE(plain, ArrowArrayStream)
DEFINE(device, ArrowDeviceArrayStream)

static int put_stream(struct request* r, const struct path* path, enum form form, const char* method, PyObject* capsule,
                      int any) {
  void* stream = capsule_pointer(r, path, capsule,
                                 form == PLAIN_STREAM ? "arrow_array_stream" : "arrow_device_array_stream", method);
  if (stream == NULL) return -1;
  int column = any && (form == PLAIN_STREAM ? plain_is_column(stream) : device_is_column(stream));
  return put_form(r, (uint8_t)(form | (column ? OF_COLUMN : 0)), (uintptr_t)stream);
}

int request_schema(struct request* r, PyObject* value, const char* method) {
  PyObject* capsule = PyObject_CallMethod(value, method, NULL);
  if (capsule == NULL) return -1;
  void* schema = capsule_pointer(r, NULL, capsule, "arrow_schema", method);
  Py_DecRef(capsule);
  return schema ? put_form(r, SCHEMA_STRUCT, (uintptr_t)schema) : -1;
}

/* The number of the default stream in __dlpack__, by device type; it has no streams for the others, which is -1. */
static int64_t default_stream(int64_t device_type) {
  switch (device_type) {
    case ARROW_DEVICE_CUDA:
    case ARROW_DEVICE_CUDA_MANAGED: return 1;
    case ARROW_DEVICE_ROCM: return 0;
  }
  return -1;
}

static PyObject* call_dlpack(PyObject* value, int64_t stream, int versioned) {
  PyObject* method = PyObject_GetAttrString(value, "__dlpack__");
  PyObject* none = PyTuple_New(0);
  PyObject* keywords = stream < 0 ? PyDict_New() : Py_BuildValue("{s:L}", "stream", (long long)stream);
  PyObject* capsule = NULL;
  if (versioned && keywords != NULL) {
    PyObject* version = Py_BuildValue("(ii)", 1, 0);
    if (version == NULL || PyDict_SetItemString(keywords, "max_version", version)) PyErr_NoMemory();
    if (version != NULL) Py_DecRef(version);
  }
  if (method != NULL && none != NULL && keywords != NULL && !PyErr_Occurred())
    capsule = PyObject_Call(method, none, keywords);
  if (method != NULL) Py_DecRef(method);
  if (none != NULL) Py_DecRef(none);
  if (keywords != NULL) Py_DecRef(keywords);
  return capsule;
}

static int put_tensor(struct request* r, const struct path* path, PyObject* value) {
  PyObject* device = PyObject_CallMethod(value, "__dlpack_device__", NULL);
  if (device == NULL) return -1;
  PyObject* device_type = PyObject_CallMethod(device, "__getitem__", "i", 0);
  Py_DecRef(device);
  PyObject* number = device_type ? PyNumber_Index(device_type) : NULL;
  if (device_type != NULL) Py_DecRef(device_type);
  if (number == NULL) return -1;
  int overflow;
  int64_t stream = default_stream(PyLong_AsLongLongAndOverflow(number, &overflow));
  Py_DecRef(number);
  PyObject* capsule = call_dlpack(value, stream, 1);
  if (capsule == NULL && PyErr_ExceptionMatches(py.type_error)) { /* a producer of before DLPack 1.0 */
    PyErr_Clear();
    capsule = call_dlpack(value, stream, 0);
  }
  if (capsule == NULL) return -1;
  int versioned = PyCapsule_IsValid(capsule, "dltensor_versioned");
  void* tensor = capsule_pointer(r, path, capsule, versioned ? "dltensor_versioned" : "dltensor", "__dlpack__");
  if (tensor == NULL) {
    Py_DecRef(capsule);
    return -1;
  }
  if (objects_add(&r->consumed, capsule)) return -1;
  return put_form(r, versioned ? TENSOR : LEGACY_TENSOR, (uintptr_t)tensor) || put_signed(r, stream) ? -1 : 0;
}

/* What the CUDA Array Interface defines; a producer may add what it likes. A mask is an object with one of its own. */
static PyObject* known_entries(struct request* r, const struct path* path, PyObject* interface, PyObject* owners) {
  static const char* const keys[] = {"shape", "typestr", "data", "version", "strides", "descr", "stream", "mask"};
  if (!is_a(interface, PYTHON_DICT)) {
    refuse(r, path, py.type_error,
           PyUnicode_FromFormat("__cuda_array_interface__ is %s, not dict", type_name(interface)));
    return NULL;
  }
  PyObject* known = PyDict_New();
  for (size_t i = 0; known != NULL && i < sizeof keys / sizeof *keys; i++) {
    PyObject* entry = PyDict_GetItemString(interface, keys[i]);
    if (entry == NULL) continue;
    Py_IncRef(entry);
    if (strcmp(keys[i], "mask") == 0 && entry != py.none) {
      PyObject* kept = PyObject_CallMethod(owners, "append", "O", entry);
      PyObject* inner = kept ? PyObject_GetAttrString(entry, "__cuda_array_interface__") : NULL;
      if (kept != NULL) Py_DecRef(kept);
      Py_DecRef(entry);
      entry = inner ? known_entries(r, path, inner, owners) : NULL;
      if (inner != NULL) Py_DecRef(inner);
    }
    int failed = entry == NULL || PyDict_SetItemString(known, keys[i], entry);
    if (entry != NULL) Py_DecRef(entry);
    if (failed) {
      Py_DecRef(known);
      return NULL;
    }
  }
  return known;
}

static int put_cuda_array(struct request* r, const struct path* path, PyObject* value, PyObject* interface) {
  PyObject* owners = Py_BuildValue("[OO]", value, interface);
  PyObject* known = owners ? known_entries(r, path, interface, owners) : NULL;
  int failed = known == NULL || put_form(r, CUDA_ARRAY, (uintptr_t)owners) || put_dict(r, path, &scalar_type, known);
  if (known != NULL) Py_DecRef(known);
  if (owners == NULL) return -1;
  return objects_add(&r->owners, owners) || failed ? -1 : 0;
}

/* The protocols, as bits of a set, and the order in which a type of parameter asks for them. */

enum protocol { P_DEVICE_ARRAY, P_DEVICE_STREAM, P_ARRAY, P_STREAM, P_TENSOR, P_CUDA_ARRAY, P_SCHEMA, P_END };

static const char* const method_names[] = {
    "__arrow_c_device_array__", "__arrow_c_device_stream__", "__arrow_c_array__", "__arrow_c_stream__", "__dlpack__",
    "__cuda_array_interface__", "__arrow_c_schema__",
};

static const enum protocol reader_order[] = {P_DEVICE_STREAM, P_DEVICE_ARRAY, P_STREAM, P_ARRAY, P_END},
                           batch_order[] = {P_DEVICE_ARRAY, P_DEVICE_STREAM, P_ARRAY, P_STREAM, P_END},
                           array_order[] = {P_DEVICE_ARRAY, P_ARRAY, P_STREAM, P_TENSOR, P_CUDA_ARRAY, P_END},
                           any_order[] = {P_DEVICE_ARRAY, P_DEVICE_STREAM, P_ARRAY,  P_STREAM,
                                          P_TENSOR,       P_CUDA_ARRAY,    P_SCHEMA, P_END},
                           schema_order[] = {P_SCHEMA, P_END};

static PyObject* method_keys[P_END];

static int fill_keys(void) {
  for (int i = 0; i < P_END; i++) {
    if (method_keys[i] == NULL) method_keys[i] = PyUnicode_InternFromString(method_names[i]);
    if (method_keys[i] == NULL) return -1;
  }
  return 0;
}

static int put_arrow(struct request* r, const struct path* path, const enum protocol* order, PyObject* value, int any);

/* A tensor, or what stands for an array of NumPy that DLPack cannot describe. */
static int put_tensor_or_column(struct request* r, const struct path* path, PyObject* value) {
  PyObject* column = PyObject_CallFunctionObjArgs(r->binding->column_of, value, NULL);
  if (column == NULL) return -1;
  int done = column == value ? put_tensor(r, path, value) : put_arrow(r, path, array_order, column, 0);
  Py_DecRef(column);
  return done;
}

static int put_protocol(struct request* r, const struct path* path, enum protocol p, PyObject* value,
                        PyObject* attribute, int any) {
  if (p == P_TENSOR) return put_tensor_or_column(r, path, value);
  if (p == P_CUDA_ARRAY) return put_cuda_array(r, path, value, attribute);
  PyObject* made = PyObject_CallNoArgs(attribute);
  if (made == NULL) return -1;
  int result = -1;
  const char* method = method_names[p];
  switch (p) {
    case P_DEVICE_ARRAY: result = put_pair(r, path, DEVICE_ARRAY, "arrow_device_array", method, made); break;
    case P_ARRAY: result = put_pair(r, path, PLAIN_ARRAY, "arrow_array", method, made); break;
    case P_DEVICE_STREAM: result = put_stream(r, path, DEVICE_STREAM, method, made, any); break;
    case P_STREAM: result = put_stream(r, path, PLAIN_STREAM, method, made, any); break;
    default: {
      void* schema = capsule_pointer(r, path, made, "arrow_schema", method);
      result = schema ? put_form(r, SCHEMA_STRUCT, (uintptr_t)schema) : -1;
    }
  }
  Py_DecRef(made);
  return result;
}

/* Encodes an object by the first of the protocols that it has. Returns 1 if it has none. */
static int put_arrow(struct request* r, const struct path* path, const enum protocol* order, PyObject* value, int any) {
  int own = put_own(r, path, value);
  if (own <= 0 || is_a(value, PYTHON_TYPE)) return own;
  for (; *order != P_END; order++) {
    PyObject* attribute = get_optional(value, method_keys[*order]);
    if (attribute == NULL && PyErr_Occurred()) return -1;
    if (attribute == NULL) continue;
    int result = put_protocol(r, path, *order, value, attribute, any);
    Py_DecRef(attribute);
    return result;
  }
  return 1;
}

static int refuse_arrow(struct request* r, const struct path* path, const char* wanted, const enum protocol* order,
                        PyObject* value, const char* end) {
  char rest[300];
  size_t n = (size_t)snprintf(rest, sizeof rest, ": it has none of ");
  for (const enum protocol* p = order; *p != P_END && n < sizeof rest; p++)
    n += (size_t)snprintf(rest + n, sizeof rest - n, "%s%s", p == order ? "" : ", ", method_names[*p]);
  if (n < sizeof rest) snprintf(rest + n, sizeof rest - n, "%s", end);
  return refuse_kind(r, path, wanted, value, rest);
}

/* An iterator of an iterable of batches that is no container of other things, or of what a callable returns until None.
 * NULL without an exception for another value. */
static PyObject* iterator_of(PyObject* value) {
  if (is_a(value, PYTHON_STR | PYTHON_DICT) || is_a(value, PYTHON_TYPE) || is_bytes(value)) return NULL;
  PyObject* has = get_optional(value, py.iter);
  if (has == NULL && PyErr_Occurred()) return NULL;
  if (has != NULL) Py_DecRef(has);
  if (has != NULL && array_without_dimensions(value) != 1) return PyObject_GetIter(value);
  return PyCallable_Check(value) ? PyCallIter_New(value, py.none) : NULL;
}

static int put_reader(struct request* r, const struct path* path, PyObject* value) {
  int done = put_arrow(r, path, reader_order, value, 0);
  if (done <= 0) return done;
  PyObject* iterator = iterator_of(value);
  if (iterator == NULL && PyErr_Occurred()) return -1;
  if (iterator == NULL)
    return refuse_arrow(r, path, "RecordReader", reader_order, value, ", and is no iterable or callable");
  void* source = source_new(r->binding, value, iterator);
  Py_DecRef(iterator);
  void** grown = source ? realloc(r->sources, (r->source_count + 1) * sizeof *grown) : NULL;
  if (grown == NULL) {
    if (source != NULL) source_free(source);
    PyErr_NoMemory();
    return -1;
  }
  r->sources = grown;
  r->sources[r->source_count++] = source;
  return put_form(r, ITERABLE, (uintptr_t)source);
}

static int put_any(struct request* r, const struct path* path, PyObject* value) {
  int done = put_plain(r, path, &any_type, value);
  if (done <= 0) return done;
  if (array_without_dimensions(value) != 1) done = put_arrow(r, path, any_order, value, 1); /* else a scalar of NumPy */
  return done > 0 ? put_scalar(r, path, value) : done;
}

static int put_of_order(struct request* r, const struct path* path, const char* wanted, const enum protocol* order,
                        PyObject* value) {
  int done = put_arrow(r, path, order, value, 0);
  return done > 0 ? refuse_arrow(r, path, wanted, order, value, "") : done;
}

enum { MOST_DEEP = 200 }; /* maxDepth of pyextension: a list may contain itself */

static int is_too_deep(const struct path* path) {
  int depth = 0;
  for (; path != NULL; path = path->outer) depth++;
  return depth > MOST_DEEP;
}

static int put_value(struct request* r, const struct path* path, const struct type* type, PyObject* value) {
  if (path != NULL && is_too_deep(path)) {
    PyErr_Format(py.value_error, "%s: argument %s: is nested more than %d deep, or contains itself", r->function,
                 r->argument, MOST_DEEP);
    r->refused = 1;
    return -1;
  }
  switch (type->kind) {
    case READER: return put_reader(r, path, value);
    case BATCH: return put_of_order(r, path, "RecordBatch", batch_order, value);
    case ARRAY: return put_of_order(r, path, "Array", array_order, value);
    case SCHEMA: return put_of_order(r, path, "Schema", schema_order, value);
    case ANY: return put_any(r, path, value);
    case FLOAT: return put_number_as_float(r, path, value);
    case OPTIONAL: return value == py.none ? put(r, "N", 1) : put_value(r, path, type->element, value);
    case LIST:
      if (!is_a(value, PYTHON_LIST | PYTHON_TUPLE)) return refuse_kind(r, path, "list", value, "");
      return put_list(r, path, type->element, value);
    case DICT:
      if (!is_a(value, PYTHON_DICT)) return refuse_kind(r, path, "dict", value, "");
      return put_dict(r, path, type->element, value);
    case SCALAR: break;
  }
  return put_scalar(r, path, value);
}

int request_add(struct request* r, const struct type* type, const char* name, PyObject* value) {
  r->argument = name;
  if (fill_keys()) return -1;
  int failed = put_value(r, NULL, type, value);
  if (failed && !r->refused && r->function[0] != '\0') { /* an exception of the object's own */
    PyObject* error = python_take_exception();
    PyObject* note = PyUnicode_FromFormat("%s: argument %s", r->function, name);
    PyObject* done = note ? PyObject_CallFunctionObjArgs(r->binding->annotate, error, note, NULL) : NULL;
    if (done != NULL) Py_DecRef(done);
    if (note != NULL) Py_DecRef(note);
    PyErr_Clear();
    python_set_exception(error);
  }
  return failed ? -1 : 0;
}

int request_item(struct request* r, PyObject* item, Py_ssize_t number) {
  struct path path = {NULL, number, NULL};
  r->argument = "source";
  if (fill_keys()) return -1;
  int done = put_arrow(r, &path, batch_order, item, 0);
  if (done <= 0) return done;
  return refuse(
      r, &path, py.type_error,
      PyUnicode_FromFormat("%s is no record batch: it has none of __arrow_c_device_array__, __arrow_c_device_stream__, "
                           "__arrow_c_array__, __arrow_c_stream__",
                           type_name(item)));
}

/* Types of parameters. */

static struct type* type_new(int kind, struct type* element) {
  struct type* made = malloc(sizeof *made);
  if (made == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  made->kind = kind;
  made->element = element;
  return made;
}

struct type* type_parse(const char* text, size_t size) {
  static const char none[] = " | None", list[] = "list[", dict[] = "dict[str, ";
  static const struct {
    const char* name;
    int kind;
  } names[] = {{"RecordReader", READER}, {"RecordBatch", BATCH}, {"Array", ARRAY},
               {"Schema", SCHEMA},       {"Any", ANY},           {"float", FLOAT}};
  size_t optional = strlen(none), of_list = strlen(list), of_dict = strlen(dict);
  struct type* element = NULL;
  if (size > optional && memcmp(text + size - optional, none, optional) == 0) {
    element = type_parse(text, size - optional);
    return element ? type_new(OPTIONAL, element) : NULL;
  }
  if (size > of_list && memcmp(text, list, of_list) == 0) {
    element = type_parse(text + of_list, size - of_list - 1);
    return element ? type_new(LIST, element) : NULL;
  }
  if (size > of_dict && memcmp(text, dict, of_dict) == 0) {
    element = type_parse(text + of_dict, size - of_dict - 1);
    return element ? type_new(DICT, element) : NULL;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i].name) == size && memcmp(names[i].name, text, size) == 0) return type_new(names[i].kind, NULL);
  return type_new(SCALAR, NULL);
}
