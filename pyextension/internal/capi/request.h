/* A request: an argument after the other. */
#pragma once

#include "gil.h"
#include "module.h"

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

enum { MOST_DEEP = 199 }; /* lists and dicts in one another, as of results: a list may contain itself */

/* A type of a parameter. */
struct type {
  enum { READER, BATCH, ARRAY, SCHEMA, ANY, FLOAT, SCALAR, LIST, DICT, OPTIONAL } kind;
  struct type* element; /* of LIST, DICT, OPTIONAL */
};
/* The type of an annotation. NULL with an exception. */
struct type* type_parse(const char* text, size_t size);
void type_free(struct type* type);

/* What was taken out of a capsule, under the GIL: nobody else can take it then. */
struct taken {
  struct taken* next;
  PyObject* capsule;
  PyObject* object;               /* whose capsule it is: the memory may be its own */
  const char* name;               /* that the capsule of a tensor had, else NULL */
  void* from;                     /* the struct of the capsule, which is empty */
  size_t size, release_at;        /* of the struct, and of its callback; 0 for a capsule that is only kept */
  _Alignas(8) uint8_t moved[128]; /* the contents of the struct, until Go moves them on */
};
/* Frees a list. What Go has not taken goes back to its capsule. */
void taken_free(struct taken* list, int to_go);

/* A request: bytes, and what must live until Go has read them. The caller holds the GIL. */
struct request {
  uint8_t* data;
  size_t size, room;
  uint8_t first[256];
  const struct binding* binding;
  struct taken* taken;
  PyObject* object;      /* that is encoded, borrowed, or NULL */
  struct objects owners; /* what Go holds a reference to afterwards */
  void** sources;        /* that go to Go */
  size_t source_count;
  int committed;
  const char *function, *argument; /* that is encoded, for errors; empty for a built-in function */
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

/* Where a value is inside an argument: an index of a list or a key of a dict. */
struct path {
  const struct path* outer; /* NULL for the argument itself */
  Py_ssize_t index;
  PyObject* key; /* NULL for an index */
};

/* Takes a struct out of a capsule, and returns where its contents are. name is that of the capsule, method is what
 * returned it. NULL with an exception. */
void* take_struct(struct request* r, const struct path* path, PyObject* capsule, const char* name, const char* method);
/* Keeps the owner of an object of this library, which it takes. Returns -1 with an exception. */
int take_owner(struct request* r, PyObject* owner);
/* Takes a tensor, whose capsule is renamed, and returns its address. */
void* take_tensor(struct request* r, const struct path* path, PyObject* capsule, const char* name);

/* The rest is between the files that encode arguments. Each function returns -1 with an exception. */

/* Sets an exception that names the argument, and returns -1. Takes the text, which may be NULL with an exception. */
int refuse(struct request* r, const struct path* path, PyObject* kind, PyObject* text);
/* The same of a value that is not of the kind that is wanted; rest is the end of the text. */
int refuse_kind(struct request* r, const struct path* path, const char* wanted, PyObject* value, const char* rest);
/* The name of the type of an object, valid until the next call. */
const char* type_name(PyObject* value);

int put(struct request* r, const void* data, size_t size);
int put_number(struct request* r, char letter, const void* number, size_t size);
int put_count(struct request* r, char letter, Py_ssize_t count);
int put_signed(struct request* r, int64_t number);
int put_form(struct request* r, uint8_t form, uint64_t first);

extern const struct type scalar_type;
int put_value(struct request* r, const struct path* path, const struct type* type, PyObject* value);
int put_dict(struct request* r, const struct path* path, const struct type* element, PyObject* value);
/* An object of the kind of a type: READER, BATCH, ARRAY or SCHEMA. */
int put_arrow(struct request* r, const struct path* path, const struct type* type, PyObject* value);
/* An object of any of these kinds. Returns 1 for a value that is none. */
int put_any_arrow(struct request* r, const struct path* path, PyObject* value);

int is_bytes(PyObject* value);
/* 1 for an array without dimensions, such as a scalar of NumPy, 0 for an array with some, 2 for what is no array. */
int array_without_dimensions(PyObject* value);
