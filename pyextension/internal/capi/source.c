/* Iterables of Python as sources of batches: Go asks for one item after the other, on any thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"

struct arrowdevice_source {
  const struct binding* binding;
  PyObject* iterator;  /* until its end */
  PyObject* iterable;  /* until the first item, whose schema it may have */
  struct taken* taken; /* of the item that was read last */
  Py_ssize_t number;
};

static int alive; /* under the GIL: sources that Go may still read */

int arrowdevice_sources(void) { return alive; }

struct arrowdevice_source* source_new(const struct binding* binding, PyObject* iterable, PyObject* iterator) {
  struct arrowdevice_source* s = malloc(sizeof *s);
  if (s == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  s->binding = binding;
  s->iterator = iterator;
  s->iterable = iterable;
  Py_IncRef(iterator);
  Py_IncRef(iterable);
  s->taken = NULL;
  s->number = 0;
  alive++;
  return s;
}

void source_free(struct arrowdevice_source* s) {
  alive--;
  taken_free(s->taken, 1);
  Py_DecRef(s->iterator);
  Py_DecRef(s->iterable);
  free(s);
}

/* The text of an exception with its type, or NULL without memory. It is to be freed. */
static char* describe_exception(PyObject* exception) {
  PyObject* text = PyObject_Str(exception);
  if (text == NULL) {
    PyErr_Clear();
    text = PyUnicode_FromString("(its text cannot be made)");
  }
  const char* name = type_name(exception);
  PyObject* whole = NULL;
  if (text != NULL)
    whole = PyObject_IsTrue(text) == 1 ? PyUnicode_FromFormat("%s: %U", name, text) : PyUnicode_FromString(name);
  PyObject* encoded = whole ? PyUnicode_AsEncodedString(whole, "utf-8", "backslashreplace") : NULL;
  Py_DecRef(whole);
  Py_DecRef(text);
  char *data, *copy = NULL;
  Py_ssize_t size;
  if (encoded != NULL && PyBytes_AsStringAndSize(encoded, &data, &size) == 0) copy = malloc((size_t)size + 1);
  if (copy != NULL) {
    memcpy(copy, data, (size_t)size + 1);
    for (Py_ssize_t i = 0; i < size; i++)
      if (copy[i] == '\0') copy[i] = ' '; /* C ends a text there */
  }
  Py_DecRef(encoded);
  PyErr_Clear();
  return copy;
}

static int code_of(const struct binding* binding, PyObject* exception) {
  static const struct {
    const char* name;
    int code;
  } codes[] = {{"MemoryError", ENOMEM}, {"NotImplementedError", ENOSYS}, {"TypeError", EINVAL}, {"ValueError", EINVAL}};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    PyObject* name = PyUnicode_FromString(codes[i].name);
    PyObject* kind = name ? PyDict_GetItemWithError(binding->errors, name) : NULL;
    Py_DecRef(name);
    PyErr_Clear();
    if (kind != NULL && PyType_IsSubtype(exception->type, kind)) return codes[i].code;
  }
  return EIO;
}

/* Tells Go of the exception that is set. */
static void fail(struct arrowdevice_source* s, struct arrowdevice_item* out) {
  PyObject* exception = python_take_exception();
  out->failed = 1;
  if (arrowdevice_on_main_thread()) {
    PyObject* answer = PyObject_CallFunctionObjArgs(s->binding->is_of_handler, exception, NULL);
    int is_of_handler = answer != NULL && PyObject_IsTrue(answer) == 1;
    Py_DecRef(answer);
    PyErr_Clear();
    if (is_of_handler) {
      out->code = EINTR;
      python_interrupt(exception);
      return;
    }
  }
  out->code = code_of(s->binding, exception);
  out->text = describe_exception(exception);
  out->exception = exception;
}

/* The schema of an iterable without items. */
static int put_schema(struct arrowdevice_source* s, struct request* r) {
  PyObject* schema = get_optional(s->iterable, py.schema);
  PyObject* method = schema ? PyObject_GetAttrString(schema, "__arrow_c_schema__") : NULL;
  if (method == NULL) {
    Py_DecRef(schema);
    PyErr_Clear();
    PyErr_Format(py.value_error, "source: has no items, and no attribute schema: its schema is not known");
    return -1;
  }
  Py_DecRef(method);
  int failed = request_schema(r, schema, "__arrow_c_schema__");
  Py_DecRef(schema);
  return failed;
}

void arrowdevice_source_next(struct arrowdevice_source* s, uint64_t* thread, struct arrowdevice_item* out) {
  struct python_state state;
  memset(out, 0, sizeof *out);
  if (!python_enter(&state)) {
    out->failed = 1;
    out->code = ECANCELED;
    return;
  }
  struct request r;
  request_begin(&r, s->binding);
  __atomic_store_n(thread, arrowdevice_this_thread(), __ATOMIC_RELAXED); /* until the last object is dropped */
  taken_free(s->taken, 1);
  s->taken = NULL;
  PyObject* item = s->iterator ? PyIter_Next(s->iterator) : NULL;
  int failed = 0;
  if (item == NULL) { /* its end: it may hold its exception, and so frames with the reader that holds the source */
    Py_DecRef(s->iterator);
    s->iterator = NULL;
  }
  if (item != NULL) {
    failed = request_item(&r, item, s->number++);
    Py_DecRef(item);
  } else if (PyErr_Occurred()) {
    failed = 1;
  } else if (s->iterable != NULL) {
    failed = put_schema(s, &r);
  }
  if (failed) {
    fail(s, out);
  } else {
    memcpy(out->encoded, r.data, r.size);
    out->size = r.size;
    s->taken = r.taken; /* until Go has moved it on */
    r.taken = NULL;
  }
  Py_DecRef(s->iterable);
  s->iterable = NULL;
  request_end(&r);
  __atomic_store_n(thread, 0, __ATOMIC_RELAXED);
  python_leave(&state);
}

/* A generator ends with the stream; another iterator is left as it is, and may be used afterwards. */
static int is_generator(PyObject* iterator) {
  static const char* const methods[] = {"send", "throw", "close"};
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    PyObject* method = PyObject_GetAttrString(iterator, methods[i]);
    PyErr_Clear();
    if (method == NULL) return 0;
    Py_DecRef(method);
  }
  return 1;
}

void arrowdevice_source_release(struct arrowdevice_source* s) {
  struct python_state state;
  if (!python_enter(&state)) return;
  PyObject* closed =
      s->iterator != NULL && is_generator(s->iterator) ? PyObject_CallMethod(s->iterator, "close", NULL) : NULL;
  Py_DecRef(closed);
  if (PyErr_Occurred()) {
    struct arrowdevice_item failure = {0};
    fail(s, &failure);
    free(failure.text);
    if (failure.exception != NULL) { /* of the generator's finally: nobody catches it */
      python_set_exception(failure.exception);
      PyErr_WriteUnraisable(s->iterator);
    }
  }
  source_free(s);
  python_leave(&state);
}
