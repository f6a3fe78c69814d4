/* Types of parameters. */
#include <stdlib.h>
#include <string.h>

#include "request.h"

/* Takes the element, also if it fails. */
static struct type* type_new(int kind, struct type* element) {
  struct type* made = malloc(sizeof *made);
  if (made == NULL) {
    type_free(element);
    PyErr_NoMemory();
    return NULL;
  }
  made->kind = kind;
  made->element = element;
  return made;
}

static struct type* parse(const char* text, size_t size, int depth) {
  static const char none[] = " | None", list[] = "list[", dict[] = "dict[str, ";
  static const struct {
    const char* name;
    int kind;
  } names[] = {{"RecordReader", READER}, {"RecordBatch", BATCH}, {"Array", ARRAY},
               {"Schema", SCHEMA},       {"Any", ANY},           {"float", FLOAT}};
  size_t optional = strlen(none), of_list = strlen(list), of_dict = strlen(dict);
  struct type* element = NULL;
  if (depth > MOST_DEEP) {
    PyErr_Format(py.value_error, "an annotation is nested more than %d deep", MOST_DEEP);
    return NULL;
  }
  if (size > optional && memcmp(text + size - optional, none, optional) == 0) {
    element = parse(text, size - optional, depth + 1);
    return element ? type_new(OPTIONAL, element) : NULL;
  }
  if (size > of_list && memcmp(text, list, of_list) == 0) {
    element = parse(text + of_list, size - of_list - 1, depth + 1);
    return element ? type_new(LIST, element) : NULL;
  }
  if (size > of_dict && memcmp(text, dict, of_dict) == 0) {
    element = parse(text + of_dict, size - of_dict - 1, depth + 1);
    return element ? type_new(DICT, element) : NULL;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i].name) == size && memcmp(names[i].name, text, size) == 0) return type_new(names[i].kind, NULL);
  return type_new(SCALAR, NULL);
}

struct type* type_parse(const char* text, size_t size) { return parse(text, size, 0); }

void type_free(struct type* type) {
  while (type != NULL) {
    struct type* element = type->element;
    free(type);
    type = element;
  }
}
