/* Requests: bytes that Go reads, and what must live until it has. pyextension/wire.go has the format. */
#include "request.h"

#include <stdlib.h>
#include <string.h>

void objects_begin(struct objects* all) {
  all->at = all->first;
  all->count = 0;
  all->room = sizeof all->first / sizeof *all->first;
}

int objects_add(struct objects* all, PyObject* object) {
  if (all->count == all->room) {
    size_t room = 2 * all->room;
    PyObject** at = malloc(room * sizeof *at);
    if (at == NULL) {
      Py_DecRef(object);
      PyErr_NoMemory();
      return -1;
    }
    memcpy(at, all->at, all->count * sizeof *at);
    if (all->at != all->first) free(all->at);
    all->at = at;
    all->room = room;
  }
  all->at[all->count++] = object;
  return 0;
}

void objects_drop(struct objects* all) {
  while (all->count > 0) Py_DecRef(all->at[--all->count]);
  if (all->at != all->first) free(all->at);
  all->at = all->first;
}

void request_begin(struct request* r, const struct binding* binding) {
  r->data = r->first;
  r->size = 0;
  r->room = sizeof r->first;
  r->binding = binding;
  objects_begin(&r->owners);
  r->sources = NULL;
  r->source_count = 0;
  r->taken = NULL;
  r->object = NULL;
  r->committed = 0;
  r->function = r->argument = "";
  r->refused = 0;
}

void request_commit(struct request* r) {
  r->committed = 1;
  r->owners.count = 0; /* their references are Go's, and so are the sources */
  r->source_count = 0;
}

void request_end(struct request* r) {
  taken_free(r->taken, r->committed);
  objects_drop(&r->owners);
  while (r->source_count > 0) source_free(r->sources[--r->source_count]);
  free(r->sources);
  if (r->data != r->first) free(r->data);
}

int put(struct request* r, const void* data, size_t size) {
  if (r->room - r->size < size) {
    size_t room = 2 * r->room + size;
    uint8_t* grown = malloc(room);
    if (grown == NULL) {
      PyErr_NoMemory();
      return -1;
    }
    memcpy(grown, r->data, r->size);
    if (r->data != r->first) free(r->data);
    r->data = grown;
    r->room = room;
  }
  memcpy(r->data + r->size, data, size);
  r->size += size;
  return 0;
}

/* Numbers are little endian, as every processor is that has a Go with cgo and this library. */
int put_number(struct request* r, char letter, const void* number, size_t size) {
  uint8_t all[9] = {(uint8_t)letter};
  memcpy(all + 1, number, size);
  return put(r, all, 1 + size);
}

int put_count(struct request* r, char letter, Py_ssize_t count) {
  uint32_t n = (uint32_t)count;
  return put_number(r, letter, &n, sizeof n);
}

int put_signed(struct request* r, int64_t number) { return put(r, &number, sizeof number); }

int put_form(struct request* r, uint8_t form, uint64_t first) {
  uint8_t all[10] = {'A', form};
  memcpy(all + 2, &first, sizeof first);
  return put(r, all, sizeof all);
}

int request_name(struct request* r, const char* name, size_t arguments) {
  size_t size = strlen(name);
  return put_count(r, 'L', (Py_ssize_t)arguments + 1) || put_count(r, 'S', (Py_ssize_t)size) || put(r, name, size) ? -1
                                                                                                                   : 0;
}
