/* The contents of capsules: structs are moved out, and capsules of tensors renamed, when an argument is encoded. Code
 * of a later argument, or of another thread, finds them consumed. If Go is not called, all of it goes back. */
#include <stdlib.h>
#include <string.h>

#include "../../../internal/abi/abi.h"
#include "request.h"

static const struct layout {
  const char *capsule, *name;
  size_t size, release_at;
} layouts[] = {
    {"arrow_schema", "ArrowSchema", sizeof(struct ArrowSchema), offsetof(struct ArrowSchema, release)},
    {"arrow_array", "ArrowArray", sizeof(struct ArrowArray), offsetof(struct ArrowArray, release)},
    {"arrow_device_array", "ArrowDeviceArray", sizeof(struct ArrowDeviceArray),
     offsetof(struct ArrowDeviceArray, array.release)},
    {"arrow_array_stream", "ArrowArrayStream", sizeof(struct ArrowArrayStream),
     offsetof(struct ArrowArrayStream, release)},
    {"arrow_device_array_stream", "ArrowDeviceArrayStream", sizeof(struct ArrowDeviceArrayStream),
     offsetof(struct ArrowDeviceArrayStream, release)},
};

static const struct layout* layout_of(const char* capsule) {
  const struct layout* found = layouts;
  while (strcmp(found->capsule, capsule) != 0) found++;
  return found;
}

/* Returns -1 with an exception if an object is not a capsule of a name. */
static int check(struct request* r, const struct path* path, PyObject* capsule, const char* name, const char* method) {
  if (PyCapsule_IsValid(capsule, name)) return 0;
  if (!PyType_IsSubtype(capsule->type, py.capsule_type))
    return refuse(r, path, py.type_error,
                  PyUnicode_FromFormat("%s returned %s, not a capsule %s", method, type_name(capsule), name));
  const char* named = PyCapsule_GetName(capsule);
  PyErr_Clear();
  return refuse(r, path, py.value_error,
                PyUnicode_FromFormat("%s returned a capsule with the name '%s', not '%s'%s", method, named ? named : "",
                                     name, named && strncmp(named, "used_", 5) == 0 ? ": it was consumed before" : ""));
}

static struct taken* add(struct request* r, PyObject* capsule) {
  struct taken* t = calloc(1, sizeof *t);
  if (t == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  Py_IncRef(capsule);
  t->capsule = capsule;
  t->object = r->object;
  if (t->object != NULL) Py_IncRef(t->object);
  t->next = r->taken;
  return r->taken = t;
}

static int is_empty(const void* memory, size_t release_at) {
  void* release;
  memcpy(&release, (const char*)memory + release_at, sizeof release);
  return release == NULL;
}

static void move(void* to, void* from, size_t size, size_t release_at) {
  memcpy(to, from, size);
  memset((char*)from + release_at, 0, sizeof(void*));
}

void* take_struct(struct request* r, const struct path* path, PyObject* capsule, const char* name, const char* method) {
  const struct layout* l = layout_of(name);
  if (check(r, path, capsule, name, method)) return NULL;
  if (is_empty(PyCapsule_GetPointer(capsule, name), l->release_at)) {
    refuse(r, path, py.value_error, PyUnicode_FromFormat("the %s was consumed or released before", l->name));
    return NULL;
  }
  struct taken* t = add(r, capsule);
  if (t == NULL) return NULL;
  t->from = PyCapsule_GetPointer(capsule, name);
  t->size = l->size;
  t->release_at = l->release_at;
  move(t->moved, t->from, t->size, t->release_at);
  return t->moved;
}

int take_owner(struct request* r, PyObject* owner) {
  int failed = add(r, owner) == NULL;
  Py_DecRef(owner);
  return failed ? -1 : 0;
}

static const char* used_name(const char* name) {
  return strcmp(name, "dltensor") == 0 ? "used_dltensor" : "used_dltensor_versioned";
}

void* take_tensor(struct request* r, const struct path* path, PyObject* capsule, const char* name) {
  if (check(r, path, capsule, name, "__dlpack__")) return NULL;
  struct taken* t = add(r, capsule);
  if (t == NULL) return NULL;
  t->from = PyCapsule_GetPointer(capsule, name);
  t->name = PyCapsule_GetName(capsule);
  PyCapsule_SetName(capsule, used_name(name));
  return t->from;
}

static void give_back(struct taken* t) {
  if (t->name != NULL) {
    if (PyCapsule_IsValid(t->capsule, used_name(t->name))) PyCapsule_SetName(t->capsule, t->name);
  } else if (t->size == 0 || is_empty(t->moved, t->release_at)) {
    return;
  } else if (is_empty(t->from, t->release_at)) {
    move(t->from, t->moved, t->size, t->release_at);
  } else { /* its producer has filled it again */
    void (*release)(void*);
    memcpy(&release, t->moved + t->release_at, sizeof release);
    release(t->moved);
  }
}

void taken_free(struct taken* list, int to_go) {
  PyObject *type = NULL, *value = NULL, *traceback = NULL;
  if (!to_go) PyErr_Fetch(&type, &value, &traceback); /* callbacks may be Python code */
  while (list != NULL) {
    struct taken* t = list;
    list = t->next;
    if (!to_go) give_back(t);
    Py_DecRef(t->capsule);
    Py_DecRef(t->object);
    free(t);
  }
  if (!to_go) PyErr_Restore(type, value, traceback);
}
