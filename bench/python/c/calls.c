/* The functions of measure.py as an extension in C: the least that a call can cost. Its arguments are capsules'
 * structs, which it reads, and leaves for the capsules to release. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "arrow_device.h"

static PyObject *array_method, *stream_method;

static PyObject* empty(PyObject* module, PyObject* ignored) {
  (void)module, (void)ignored;
  Py_RETURN_NONE;
}

static PyObject* add(PyObject* module, PyObject* const* args, Py_ssize_t count) {
  (void)module;
  if (count != 2) return PyErr_Format(PyExc_TypeError, "add takes 2 arguments, not %zd", count);
  long long a = PyLong_AsLongLong(args[0]), b = PyLong_AsLongLong(args[1]);
  return PyErr_Occurred() ? NULL : PyLong_FromLongLong((long long)((unsigned long long)a + (unsigned long long)b));
}

static PyObject* rows(PyObject* module, PyObject* batch) {
  (void)module;
  PyObject* capsules = PyObject_CallMethodNoArgs(batch, array_method);
  if (!capsules) return NULL;
  PyObject* result = NULL;
  if (!PyTuple_Check(capsules) || PyTuple_GET_SIZE(capsules) != 2) {
    PyErr_SetString(PyExc_TypeError, "__arrow_c_array__ returned no pair");
  } else {
    const struct ArrowSchema* schema = PyCapsule_GetPointer(PyTuple_GET_ITEM(capsules, 0), "arrow_schema");
    const struct ArrowArray* array = schema ? PyCapsule_GetPointer(PyTuple_GET_ITEM(capsules, 1), "arrow_array") : NULL;
    if (array && strcmp(schema->format, "+s") != 0) PyErr_SetString(PyExc_TypeError, "it is no batch");
    if (!PyErr_Occurred()) result = PyLong_FromLongLong(array->length);
  }
  Py_DECREF(capsules);
  return result;
}

/* Returns -1 for an error of the stream. */
static int64_t read_rows(struct ArrowArrayStream* stream) {
  struct ArrowSchema schema;
  if (stream->get_schema(stream, &schema)) return -1;
  schema.release(&schema);
  for (int64_t total = 0;;) {
    struct ArrowArray array;
    if (stream->get_next(stream, &array)) return -1;
    if (!array.release) return total;
    total += array.length;
    array.release(&array);
  }
}

static PyObject* rows_of_stream(PyObject* module, PyObject* object) {
  (void)module;
  PyObject* capsule = PyObject_CallMethodNoArgs(object, stream_method);
  if (!capsule) return NULL;
  PyObject* result = NULL;
  struct ArrowArrayStream* stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
  if (stream) {
    int64_t total;
    Py_BEGIN_ALLOW_THREADS;
    total = read_rows(stream);
    Py_END_ALLOW_THREADS;
    if (total < 0)
      PyErr_SetString(PyExc_OSError, "the stream failed");
    else
      result = PyLong_FromLongLong(total);
  }
  Py_DECREF(capsule);
  return result;
}

static PyMethodDef functions[] = {
    {"empty", empty, METH_NOARGS, NULL},
    {"add", (PyCFunction)(void (*)(void))add, METH_FASTCALL, NULL},
    {"rows", rows, METH_O, NULL},
    {"rows_of_stream", rows_of_stream, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "by_c", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit_by_c(void) {
  array_method = PyUnicode_InternFromString("__arrow_c_array__");
  stream_method = PyUnicode_InternFromString("__arrow_c_stream__");
  return array_method && stream_method ? PyModule_Create(&definition) : NULL;
}
