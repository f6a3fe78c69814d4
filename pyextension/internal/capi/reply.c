/* Replies of Go as values and exceptions of Python. pyextension/wire.go has the format. */
#include <stdlib.h>
#include <string.h>

#include "gil.h"
#include "module.h"

/* What is left of a reply. Once making a value has failed, what the rest owns is dropped, and no values are made. */
struct reader {
  const uint8_t* at;
  const struct binding* binding;
  int failed;
};

static void take(struct reader* r, void* to, size_t size) {
  memcpy(to, r->at, size);
  r->at += size;
}

static uint32_t take_count(struct reader* r) {
  uint32_t count;
  take(r, &count, sizeof count);
  return count;
}

static PyObject* take_text(struct reader* r) {
  uint32_t size = take_count(r);
  r->at += size;
  return r->failed ? NULL : PyUnicode_DecodeUTF8((const char*)r->at - size, (Py_ssize_t)size, "surrogateescape");
}

/* An object of a reply, whose handle becomes that of a capsule. */
static PyObject* take_object(struct reader* r) {
  char kind[2] = {0};
  uint64_t handle;
  int32_t device_type;
  int64_t device_id, rows;
  take(r, kind, 1);
  take(r, &handle, sizeof handle);
  take(r, &device_type, sizeof device_type);
  take(r, &device_id, sizeof device_id);
  take(r, &rows, sizeof rows);
  PyObject* owner = r->failed ? NULL : capsule_of_handle(handle);
  if (owner == NULL) {
    void* state = PyEval_SaveThread();
    arrowdevice_release(handle);
    PyEval_RestoreThread(state);
    return NULL;
  }
  PyObject* arguments = Py_BuildValue("(sNiLL)", kind, owner, (int)device_type, (long long)device_id, (long long)rows);
  PyObject* made = arguments ? PyObject_Call(r->binding->wrap, arguments, NULL) : NULL;
  Py_DecRef(arguments);
  return made;
}

static PyObject* take_struct(struct reader* r) {
  uint8_t kind;
  uint64_t address;
  take(r, &kind, sizeof kind);
  take(r, &address, sizeof address);
  if (!r->failed) return capsule_of_struct(kind, (void*)(uintptr_t)address);
  struct_destroy(kind, (void*)(uintptr_t)address);
  return NULL;
}

static PyObject* take_value(struct reader* r);

static PyObject* take_list(struct reader* r, int tuple) {
  uint32_t count = take_count(r);
  PyObject* all = r->failed ? NULL : PyList_New(0); /* no list with holes: code that makes an element can find it */
  if (all == NULL) r->failed = 1;
  for (uint32_t i = 0; i < count; i++) {
    PyObject* element = take_value(r);
    if (element == NULL || PyList_Append(all, element)) r->failed = 1;
    Py_DecRef(element);
  }
  if (!r->failed && !tuple) return all;
  PyObject* made = r->failed ? NULL : PyList_AsTuple(all);
  Py_DecRef(all);
  return made;
}

static PyObject* take_dict(struct reader* r) {
  uint32_t count = take_count(r);
  PyObject* all = r->failed ? NULL : PyDict_New();
  if (all == NULL) r->failed = 1;
  for (uint32_t i = 0; i < count; i++) {
    PyObject* key = take_text(r);
    PyObject* value = take_value(r);
    if (key == NULL || value == NULL || PyDict_SetItem(all, key, value)) r->failed = 1;
    Py_DecRef(key);
    Py_DecRef(value);
  }
  if (!r->failed) return all;
  Py_DecRef(all);
  return NULL;
}

/* The next value; NULL with an exception, or where an earlier one has failed. */
static PyObject* take_value(struct reader* r) {
  int64_t number;
  double real;
  uint32_t size;
  char letter = (char)*r->at++;
  switch (letter) {
    case 'L':
    case 'P': return take_list(r, letter == 'P');
    case 'M': return take_dict(r);
    case 'O': return take_object(r);
    case 'C': return take_struct(r);
    case 'S': return take_text(r);
    case 'I':
    case 'U':
      take(r, &number, sizeof number);
      if (r->failed) return NULL;
      return letter == 'I' ? PyLong_FromLongLong(number) : PyLong_FromUnsignedLongLong((unsigned long long)number);
    case 'D': take(r, &real, sizeof real); return r->failed ? NULL : PyFloat_FromDouble(real);
    case 'B':
      size = take_count(r);
      r->at += size;
      return r->failed ? NULL : PyBytes_FromStringAndSize((const char*)r->at - size, (Py_ssize_t)size);
  }
  if (r->failed) return NULL;
  PyObject* constant = letter == 'T' ? py.true_ : letter == 'F' ? py.false_ : py.none;
  Py_IncRef(constant);
  return constant;
}

/* Raises the exception of a kind: with the number of an error of the system, if the reply has one. */
static void raise_error(struct reader* r) {
  PyObject* kind = take_text(r);
  PyObject* text = take_text(r);
  int32_t code;
  take(r, &code, sizeof code);
  PyObject* class = kind ? PyDict_GetItemWithError(r->binding->errors, kind) : NULL;
  PyObject* arguments = NULL;
  if (text != NULL && class != NULL)
    arguments = code != 0 ? Py_BuildValue("(iO)", (int)code, text) : Py_BuildValue("(O)", text);
  PyObject* error = arguments ? PyObject_Call(class, arguments, NULL) : NULL;
  if (error != NULL)
    python_set_exception(error);
  else if (!PyErr_Occurred())
    PyErr_Format(py.runtime_error, "an error of an unknown kind");
  Py_DecRef(arguments);
  Py_DecRef(kind);
  Py_DecRef(text);
}

/* Raises an exception of a source in Python, which the reply owns, with a note. */
static void raise_of_source(struct reader* r) {
  uint64_t address;
  take(r, &address, sizeof address);
  PyObject* error = (PyObject*)(uintptr_t)address;
  PyObject* text = take_text(r);
  PyObject* note = text ? PyUnicode_FromFormat("raised by a source, which Go read: %U", text) : NULL;
  PyObject* done = note ? PyObject_CallFunctionObjArgs(r->binding->annotate, error, note, NULL) : NULL;
  Py_DecRef(done);
  Py_DecRef(note);
  Py_DecRef(text);
  PyErr_Clear();
  python_set_exception(error);
}

PyObject* reply_decode(const struct binding* binding, struct arrowdevice_reply* reply) {
  struct reader r = {reply->data, binding, 0};
  char letter = (char)*r.at++;
  PyObject* value = NULL;
  if (letter == 'E')
    raise_error(&r);
  else if (letter == 'X')
    raise_of_source(&r);
  else
    value = take_value(&r);
  if (reply->data != reply->first) free(reply->data);
  return value;
}
