/* Refusals: exceptions that name an argument, and where in it is what is wrong. */
#include <stdio.h>

#include "request.h"

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
int refuse(struct request* r, const struct path* path, PyObject* kind, PyObject* text) {
  PyObject* at = text ? path_text(path) : NULL;
  if (at != NULL && r->argument[0] == '\0')
    PyErr_Format(kind, "%U", text);
  else if (at != NULL && r->function[0] == '\0')
    PyErr_Format(kind, "%s%U: %U", r->argument, at, text);
  else if (at != NULL)
    PyErr_Format(kind, "%s: argument %s%U: %U", r->function, r->argument, at, text);
  Py_DecRef(at);
  Py_DecRef(text);
  r->refused = 1;
  return -1;
}

/* A metaclass may have any object in the place of the name. */
static const char* name_of_type(PyObject* type) {
  static char copy[200]; /* under the GIL, and read before it is given up */
  PyObject* name = PyObject_GetAttrString(type, "__name__");
  const char* text = name != NULL && is_a(name, PYTHON_STR) ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  snprintf(copy, sizeof copy, "%s", text ? text : "?");
  Py_DecRef(name);
  PyErr_Clear();
  return copy;
}

const char* type_name(PyObject* value) { return name_of_type(value->type); }

/* What is given, in the words of an error. */
static PyObject* name_of(PyObject* value) {
  if (!is_a(value, PYTHON_TYPE)) return PyUnicode_FromString(type_name(value));
  return PyUnicode_FromFormat("the class %s", name_of_type(value));
}

int refuse_kind(struct request* r, const struct path* path, const char* wanted, PyObject* value, const char* rest) {
  PyObject* name = name_of(value);
  PyObject* text = name ? PyUnicode_FromFormat("%s is wanted, not %U%s", wanted, name, rest) : NULL;
  Py_DecRef(name);
  return refuse(r, path, py.type_error, text);
}
