//go:build cgo

// Importing a schema calls the release callbacks of its children and of its dictionary.
package main

/*
#include <stddef.h>
#include <stdint.h>

struct ArrowSchema {
  const char *format, *name, *metadata;
  int64_t flags, n_children;
  struct ArrowSchema **children, *dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

// Calls that the consumer made itself: all of them while the base is not being released.
static int in_base, base_calls, child_calls, dictionary_calls;

static void release_child(struct ArrowSchema* s) { child_calls += !in_base; s->release = NULL; }
static void release_dictionary(struct ArrowSchema* s) { dictionary_calls += !in_base; s->release = NULL; }
static void release_base(struct ArrowSchema* s) {
  base_calls++;
  in_base = 1;
  for (int64_t i = 0; i < s->n_children; i++) {
    struct ArrowSchema* c = s->children[i];
    if (c->dictionary && c->dictionary->release) c->dictionary->release(c->dictionary);
    if (c->release) c->release(c);
  }
  in_base = 0;
  s->release = NULL;
}

static struct ArrowSchema values = {.format = "u", .name = "", .release = release_dictionary};
static struct ArrowSchema plain = {.format = "l", .name = "a", .release = release_child};
static struct ArrowSchema coded = {
    .format = "i", .name = "b", .dictionary = &values, .release = release_child};
static struct ArrowSchema* fields[] = {&plain, &coded};
static struct ArrowSchema base = {
    .format = "+s", .name = "", .n_children = 2, .children = fields, .release = release_base};

static struct ArrowSchema* get_base(void) { return &base; }
static int calls(int which) { return which == 0 ? base_calls : which == 1 ? child_calls : dictionary_calls; }
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"
)

func main() {
	schema, err := cdata.ImportCArrowSchema(cdata.SchemaFromPtr(uintptr(unsafe.Pointer(C.get_base()))))
	fmt.Printf("imported: %v, error %v\n", schema.Fields(), err)
	fmt.Printf("called by the consumer: base %d, children %d, dictionary %d times\n", C.calls(0), C.calls(1), C.calls(2))
	if C.calls(1) > 0 || C.calls(2) > 0 {
		fmt.Println("reproduced: the consumer released the children itself")
		return
	}
	fmt.Println("not reproduced: only the base was released")
}
