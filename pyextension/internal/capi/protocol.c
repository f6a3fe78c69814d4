/* Arguments that hold Arrow data, by the protocols of their objects. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../internal/abi/abi.h"
#include "request.h"

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
  if (!PyType_IsSubtype(value->type, r->binding->object_type)) return 1;
  PyObject* owner = PyObject_GetAttr(value, py.owner);
  if (owner == NULL) return -1;
  const uint64_t* handle = number_of_capsule(owner, handle_name);
  int closed = owner == py.none;
  if (handle != NULL) return take_owner(r, owner) ? -1 : put_form(r, OBJECT, *handle);
  Py_DecRef(owner);
  if (closed) return refuse(r, path, py.value_error, PyUnicode_FromFormat("the %s is closed", type_name(value)));
  if (r->argument[0] != '\0') return 1; /* by the protocols, unless it is what a built-in function is about */
  return refuse(r, path, py.type_error, PyUnicode_FromFormat("the %s is that of another library", type_name(value)));
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
  void* first = take_struct(r, path, schema, "arrow_schema", method);
  void* second = first ? take_struct(r, path, array, name, method) : NULL;
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
  void* stream =
      take_struct(r, path, capsule, form == PLAIN_STREAM ? "arrow_array_stream" : "arrow_device_array_stream", method);
  if (stream == NULL) return -1;
  int column = any && (form == PLAIN_STREAM ? plain_is_column(stream) : device_is_column(stream));
  return put_form(r, (uint8_t)(form | (column ? OF_COLUMN : 0)), (uintptr_t)stream);
}

int request_schema(struct request* r, PyObject* value, const char* method) {
  PyObject* capsule = PyObject_CallMethod(value, method, NULL);
  if (capsule == NULL) return -1;
  void* schema = take_struct(r, NULL, capsule, "arrow_schema", method);
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
    Py_DecRef(version);
  }
  if (method != NULL && none != NULL && keywords != NULL && !PyErr_Occurred())
    capsule = PyObject_Call(method, none, keywords);
  Py_DecRef(method);
  Py_DecRef(none);
  Py_DecRef(keywords);
  return capsule;
}

static int put_tensor(struct request* r, const struct path* path, PyObject* value) {
  PyObject* device = PyObject_CallMethod(value, "__dlpack_device__", NULL);
  if (device == NULL) return -1;
  PyObject* device_type = PyObject_CallMethod(device, "__getitem__", "i", 0);
  Py_DecRef(device);
  PyObject* number = device_type ? PyNumber_Index(device_type) : NULL;
  Py_DecRef(device_type);
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
  void* tensor = take_tensor(r, path, capsule, versioned ? "dltensor_versioned" : "dltensor");
  Py_DecRef(capsule);
  if (tensor == NULL) return -1;
  return put_form(r, versioned ? TENSOR : LEGACY_TENSOR, (uintptr_t)tensor) || put_signed(r, stream) ? -1 : 0;
}

/* What the CUDA Array Interface defines; a producer may add what it likes. A mask is an object with one of its own. The
 * owners keep the dicts, too: one may hold what has the memory. */
static PyObject* known_entries(struct request* r, const struct path* path, PyObject* interface, PyObject* owners,
                               int of_mask) {
  static const char* const keys[] = {"shape", "typestr", "data", "version", "strides", "descr", "stream", "mask"};
  if (!is_a(interface, PYTHON_DICT)) {
    refuse(r, path, py.type_error,
           PyUnicode_FromFormat("__cuda_array_interface__ is %s, not dict", type_name(interface)));
    return NULL;
  }
  PyObject* known = PyList_Append(owners, interface) == 0 ? PyDict_New() : NULL;
  for (size_t i = 0; known != NULL && i < sizeof keys / sizeof *keys; i++) {
    PyObject* key = PyUnicode_FromString(keys[i]);
    PyObject* entry = key ? PyDict_GetItemWithError(interface, key) : NULL;
    Py_DecRef(key);
    if (entry == NULL && !PyErr_Occurred()) continue;
    if (entry != NULL) Py_IncRef(entry);
    int is_mask = entry != NULL && entry != py.none && strcmp(keys[i], "mask") == 0;
    if (is_mask && of_mask) {
      refuse(r, path, py.value_error, PyUnicode_FromString("__cuda_array_interface__: the mask has a mask"));
      Py_DecRef(entry);
      entry = NULL;
    } else if (is_mask) {
      int kept = PyList_Append(owners, entry) == 0;
      PyObject* inner = kept ? PyObject_GetAttrString(entry, "__cuda_array_interface__") : NULL;
      Py_DecRef(entry);
      entry = inner ? known_entries(r, path, inner, owners, 1) : NULL;
      Py_DecRef(inner);
    }
    int failed = entry == NULL || PyDict_SetItemString(known, keys[i], entry);
    Py_DecRef(entry);
    if (failed) {
      Py_DecRef(known);
      return NULL;
    }
  }
  return known;
}

static int put_cuda_array(struct request* r, const struct path* path, PyObject* value, PyObject* interface) {
  PyObject* owners = Py_BuildValue("[O]", value);
  PyObject* known = owners ? known_entries(r, path, interface, owners, 0) : NULL;
  int failed = known == NULL || put_form(r, CUDA_ARRAY, (uintptr_t)owners) || put_dict(r, path, &scalar_type, known);
  Py_DecRef(known);
  if (owners == NULL) return -1;
  return objects_add(&r->owners, owners) || failed ? -1 : 0;
}

/* The protocols, and the order in which a type of parameter asks for them. */

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

int protocols_fill(void) {
  for (int i = 0; i < P_END; i++) {
    if (method_keys[i] == NULL) method_keys[i] = PyUnicode_InternFromString(method_names[i]);
    if (method_keys[i] == NULL) return -1;
  }
  return 0;
}

static int put_first(struct request* r, const struct path* path, const enum protocol* order, PyObject* value, int any);

/* A tensor, or what stands for an array of NumPy that DLPack cannot describe. */
static int put_tensor_or_column(struct request* r, const struct path* path, PyObject* value) {
  PyObject* column = PyObject_CallFunctionObjArgs(r->binding->column_of, value, NULL);
  if (column == NULL) return -1;
  int done = column == value ? put_tensor(r, path, value) : put_first(r, path, array_order, column, 0);
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
      void* schema = take_struct(r, path, made, "arrow_schema", method);
      result = schema ? put_form(r, SCHEMA_STRUCT, (uintptr_t)schema) : -1;
    }
  }
  Py_DecRef(made);
  return result;
}

/* Encodes an object by the first of the protocols that it has. Returns 1 if it has none. */
static int put_first(struct request* r, const struct path* path, const enum protocol* order, PyObject* value, int any) {
  int own = put_own(r, path, value);
  if (own <= 0 || is_a(value, PYTHON_TYPE)) return own;
  for (; *order != P_END; order++) {
    PyObject* attribute = get_optional(value, method_keys[*order]);
    if (attribute == NULL && PyErr_Occurred()) return -1;
    if (attribute == NULL) continue;
    PyObject* outer = r->object;
    r->object = value;
    int result = put_protocol(r, path, *order, value, attribute, any);
    r->object = outer;
    Py_DecRef(attribute);
    return result;
  }
  return 1;
}

static int refuse_arrow(struct request* r, const struct path* path, const char* wanted, const enum protocol* order,
                        PyObject* value, const char* end) {
  /* A LazyFrame of polars has its rows later. */
  PyObject* collect = is_a(value, PYTHON_TYPE) ? NULL : get_optional(value, py.collect);
  if (collect == NULL && PyErr_Occurred()) return -1;
  int is_lazy = collect != NULL;
  Py_DecRef(collect);
  char rest[350];
  size_t n = (size_t)snprintf(rest, sizeof rest, ": it has none of ");
  for (const enum protocol* p = order; *p != P_END && n < sizeof rest; p++)
    n += (size_t)snprintf(rest + n, sizeof rest - n, "%s%s", p == order ? "" : ", ", method_names[*p]);
  const char* remedy = is_lazy ? "; call its collect()" : "";
  if (n < sizeof rest) snprintf(rest + n, sizeof rest - n, "%s%s", end, remedy);
  return refuse_kind(r, path, wanted, value, rest);
}

/* An iterator of an iterable of batches that is no container of other things, or of what a callable returns until None.
 * NULL without an exception for another value. */
static PyObject* iterator_of(PyObject* value) {
  if (is_a(value, PYTHON_STR | PYTHON_DICT) || is_a(value, PYTHON_TYPE) || is_bytes(value)) return NULL;
  PyObject* has = get_optional(value, py.iter);
  if (has == NULL && PyErr_Occurred()) return NULL;
  Py_DecRef(has);
  int dimensions = has ? array_without_dimensions(value) : 1;
  if (dimensions < 0) return NULL;
  if (dimensions != 1) return PyObject_GetIter(value);
  return PyCallable_Check(value) ? PyCallIter_New(value, py.none) : NULL;
}

static int put_reader(struct request* r, const struct path* path, PyObject* value) {
  int done = put_first(r, path, reader_order, value, 0);
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

int put_arrow(struct request* r, const struct path* path, const struct type* type, PyObject* value) {
  static const struct {
    const char* name;
    const enum protocol* order;
  } kinds[] = {
      [BATCH] = {"RecordBatch", batch_order}, [ARRAY] = {"Array", array_order}, [SCHEMA] = {"Schema", schema_order}};
  if (type->kind == READER) return put_reader(r, path, value);
  int done = put_first(r, path, kinds[type->kind].order, value, 0);
  return done > 0 ? refuse_arrow(r, path, kinds[type->kind].name, kinds[type->kind].order, value, "") : done;
}

int put_any_arrow(struct request* r, const struct path* path, PyObject* value) {
  return put_first(r, path, any_order, value, 1);
}

int request_item(struct request* r, PyObject* item, Py_ssize_t number) {
  struct path path = {NULL, number, NULL};
  r->argument = "source";
  int done = put_first(r, &path, batch_order, item, 0);
  if (done <= 0) return done;
  return refuse(
      r, &path, py.type_error,
      PyUnicode_FromFormat("%s is no record batch: it has none of __arrow_c_device_array__, __arrow_c_device_stream__, "
                           "__arrow_c_array__, __arrow_c_stream__",
                           type_name(item)));
}
