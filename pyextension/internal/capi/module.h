/* What the parts of the module share. */
#pragma once

#include "capi.h"
#include "python.h"

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
  PyObject *owner, *shape, *item, *index, *float_, *iter, *schema;
} py;

int constants_fill(void);

/* An attribute, or NULL: without an exception if there is none. */
PyObject* get_optional(PyObject* object, PyObject* name);
/* Reports whether an object has a flag of its type. */
static inline int is_a(PyObject* object, unsigned long flag) { return (PyType_GetFlags(object->type) & flag) != 0; }

/* Objects that something keeps. */
struct objects {
  PyObject** at;
  size_t count, room;
  PyObject* first[6];
};
void objects_begin(struct objects* all);
/* Takes a reference. Returns -1 with an exception if there is no memory, when the reference is dropped. */
int objects_add(struct objects* all, PyObject* object);
void objects_drop(struct objects* all);

/* A type of a parameter. */
struct type {
  enum { READER, BATCH, ARRAY, SCHEMA, ANY, FLOAT, SCALAR, LIST, DICT, OPTIONAL } kind;
  struct type* element; /* of LIST, DICT, OPTIONAL */
};
/* The type of an annotation; it is never freed. NULL with an exception. */
struct type* type_parse(const char* text, size_t size);

/* A request: bytes, and what must live until Go has read them. The caller holds the GIL. */
struct request {
  uint8_t* data;
  size_t size, room;
  uint8_t first[256];
  const struct binding* binding;
  struct objects kept;     /* capsules */
  struct objects consumed; /* capsules whose tensor goes to Go */
  struct objects owners;   /* what Go holds a reference to afterwards */
  void** sources;          /* that go to Go */
  size_t source_count;
  const char *function, *argument; /* that is encoded, for errors */
  int refused;                     /* an exception that is set says what is wrong with the argument */
};
void request_begin(struct request* r, const struct binding* binding);
/* Begins a request for a function with a number of arguments. */
int request_name(struct request* r, const char* name, size_t arguments);
/* Adds an argument of a type. Returns -1 with an exception. */
int request_add(struct request* r, const struct type* type, const char* name, PyObject* value);
/* Gives to Go what the request hands over. Go is called after it in any case. */
void request_commit(struct request* r);
void request_end(struct request* r);

/* Encodes an item of a source. Returns -1 with an exception. */
int request_item(struct request* r, PyObject* item, Py_ssize_t number);
int request_schema(struct request* r, PyObject* value, const char* method);

/* A source of an iterable. NULL with an exception. */
struct arrowdevice_source* source_new(const struct binding* binding, PyObject* iterable, PyObject* iterator);
void source_free(struct arrowdevice_source* source);

/* The value or the exception of a reply, whose memory it frees. */
PyObject* reply_decode(const struct binding* binding, struct arrowdevice_reply* reply);

/* The text of an exception with its type, or NULL without memory. It is to be freed. */
char* describe_exception(PyObject* exception);

extern const char handle_name[]; /* of capsules that drop an object */
extern const char call_name[];   /* of capsules that cancel a call */
PyObject* capsule_of_handle(uint64_t handle);
PyObject* capsule_of_call(uint64_t number);
/* A capsule of a C struct, named by its position in the list of names, which releases it. NULL with an exception, when
 * the struct is released. */
PyObject* capsule_of_struct(uint8_t kind, void* memory);
void struct_destroy(uint8_t kind, void* memory);
