/* Arguments as values: numbers, texts, lists and dicts, and what is in them. */
#include "request.h"

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
  Py_DecRef(bits);
  if (PyErr_Occurred()) return -1;
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

int array_without_dimensions(PyObject* value) {
  PyObject* shape = get_optional(value, py.shape);
  if (shape == NULL) return PyErr_Occurred() ? -1 : 2;
  int empty = is_empty_tuple(shape);
  Py_DecRef(shape);
  return empty;
}

const struct type scalar_type = {SCALAR, NULL};
static const struct type any_type = {ANY, NULL};

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

int put_dict(struct request* r, const struct path* path, const struct type* element, PyObject* value) {
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

int is_bytes(PyObject* value) {
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

/* What a scalar of NumPy holds, or NULL: without an exception for another value, of so many dimensions. */
static PyObject* item_of(PyObject* value, int dimensions) {
  PyObject* method = dimensions == 1 ? get_optional(value, py.item) : NULL;
  if (method == NULL) return NULL;
  PyObject* item = PyObject_CallNoArgs(method);
  Py_DecRef(method);
  return item;
}

/* A value that Go checks: a number, a text, or what is like one. */
static int put_scalar(struct request* r, const struct path* path, PyObject* value) {
  int done = put_plain(r, path, &scalar_type, value);
  if (done <= 0) return done;
  int dimensions = array_without_dimensions(value);
  if (dimensions < 0) return -1;
  PyObject* item = item_of(value, dimensions);
  if (item != NULL) {
    done = put_plain(r, path, &scalar_type, item);
    Py_DecRef(item);
    return done > 0 ? unsupported(r, path, value) : done;
  }
  if (PyErr_Occurred()) return -1;
  if (dimensions == 0) return unsupported(r, path, value); /* arrays of NumPy have an __index__ that raises */
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
  int dimensions = array_without_dimensions(value);
  if (dimensions < 0) return -1;
  if (dimensions == 0) return refuse_kind(r, path, "float", value, "");
  PyObject* item = item_of(value, dimensions);
  if (item == NULL && PyErr_Occurred()) return -1;
  int is_bool = item != NULL && item->type == (void*)py.bool_type;
  Py_DecRef(item);
  PyObject* has = is_bool ? NULL : get_optional(value, py.float_);
  if (has == NULL) return PyErr_Occurred() ? -1 : put_scalar(r, path, value);
  Py_DecRef(has);
  PyObject* number = PyNumber_Float(value);
  if (number == NULL) return -1;
  int failed = put_float(r, number);
  Py_DecRef(number);
  return failed;
}

static int put_any(struct request* r, const struct path* path, PyObject* value) {
  int done = put_plain(r, path, &any_type, value);
  if (done <= 0) return done;
  int dimensions = array_without_dimensions(value);
  if (dimensions < 0) return -1;
  if (dimensions != 1) done = put_any_arrow(r, path, value); /* else a scalar of NumPy */
  return done > 0 ? put_scalar(r, path, value) : done;
}

static int is_too_deep(const struct path* path) {
  int depth = 0;
  for (; path != NULL; path = path->outer) depth++;
  return depth > MOST_DEEP;
}

int put_value(struct request* r, const struct path* path, const struct type* type, PyObject* value) {
  if (path != NULL && is_too_deep(path)) {
    PyErr_Format(py.value_error, "%s: argument %s: is nested more than %d deep, or contains itself", r->function,
                 r->argument, MOST_DEEP);
    r->refused = 1;
    return -1;
  }
  switch (type->kind) {
    case READER:
    case BATCH:
    case ARRAY:
    case SCHEMA: return put_arrow(r, path, type, value);
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
  int failed = put_value(r, NULL, type, value);
  if (failed && !PyErr_Occurred()) PyErr_NoMemory();     /* not even an exception could be made */
  if (failed && !r->refused && r->function[0] != '\0') { /* an exception of the object's own */
    PyObject* error = python_take_exception();
    PyObject* note = PyUnicode_FromFormat("%s: argument %s", r->function, name);
    PyObject* done = note ? PyObject_CallFunctionObjArgs(r->binding->annotate, error, note, NULL) : NULL;
    Py_DecRef(done);
    Py_DecRef(note);
    PyErr_Clear();
    python_set_exception(error);
  }
  return failed ? -1 : 0;
}
