/* What the parts of the module share. */
#pragma once

#include "capi.h"
#include "python.h"

struct request;

/* The state of a module: each copy of the package arrowdevice that loads this library has one. It lives as long as the
 * process, as the functions do that refer to it. */
struct binding {
  PyObject* object_type; /* the class of objects of a library, with an attribute _owner */
  PyObject* wrap;        /* makes an object of (kind, owner, device type, device id, rows) */
  PyObject* errors;      /* the classes of exceptions by their names */
  PyObject* annotate;    /* adds a note to an exception that is not ours */
  PyObject* is_of_handler;
  PyObject* column_of; /* what is handed over for a tensor */
  PyObject* path;      /* of the library */
};

/* Objects and texts of Python that are the same in every module. */
extern struct constants {
  PyObject *none, *true_, *false_;
  PyObject *float_type, *bool_type, *capsule_type, *bytearray_type, *memoryview_type;
  PyObject *attribute_error, *value_error, *type_error, *overflow_error, *runtime_error, *unicode_error;
  PyObject *owner, *shape, *item, *index, *float_, *iter, *collect, *schema;
} py;

int constants_fill(void);
int protocols_fill(void);

/* An attribute, or NULL: without an exception if there is none. */
PyObject* get_optional(PyObject* object, PyObject* name);
/* Reports whether an object has a flag of its type. */
static inline int is_a(PyObject* object, unsigned long flag) { return (PyType_GetFlags(object->type) & flag) != 0; }

/* A source of an iterable. NULL with an exception. */
struct arrowdevice_source* source_new(const struct binding* binding, PyObject* iterable, PyObject* iterator);
void source_free(struct arrowdevice_source* source);

/* The value or the exception of a reply, whose memory it frees. */
PyObject* reply_decode(const struct binding* binding, struct arrowdevice_reply* reply);

extern const char handle_name[]; /* of capsules that drop an object */
extern const char call_name[];   /* of capsules that cancel a call */
PyObject* capsule_of_handle(uint64_t handle);
PyObject* capsule_of_call(uint64_t number);
/* Where the number of a capsule of this library is, which has one of these names. NULL without an exception for another
 * object. */
uint64_t* number_of_capsule(PyObject* capsule, const char* name);
/* A capsule of a C struct, named by its position in the list of names, which releases it. NULL with an exception, when
 * the struct is released. */
PyObject* capsule_of_struct(uint8_t kind, void* memory);
void struct_destroy(uint8_t kind, void* memory);
