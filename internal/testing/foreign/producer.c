#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "foreign.h"

#if defined(__SANITIZE_ADDRESS__)
enum { FREES = 1 };
#else
enum { FREES = 0 };
#endif

/* Late reads find other values, or are found by AddressSanitizer. */
static void end(struct foreign_producer* p) {
  for (int64_t i = 0; i < p->n_host; i++) {
    memset(p->host[i], 0xdd, p->sizes[i]);
    if (FREES) {
      free(p->host[i]);
      p->host[i] = NULL;
    }
  }
  __atomic_add_fetch(&p->ended, 1, __ATOMIC_ACQ_REL);
}

void foreign_release_node(struct ArrowArray* a) {
  struct foreign_node* node = a->private_data;
  struct foreign_producer* p = node->producer;
  if (__atomic_add_fetch(&node->releases, 1, __ATOMIC_ACQ_REL) != 1) {
    __atomic_add_fetch(&p->again, 1, __ATOMIC_ACQ_REL);
    return;
  }
  const struct ArrowArray* made = &node->made;
  for (int64_t i = 0; i < made->n_children; i++) {
    struct ArrowArray* child = made->children[i];
    if (child != NULL && child->release != NULL) child->release(child);
  }
  if (made->dictionary != NULL && made->dictionary->release != NULL) made->dictionary->release(made->dictionary);
  a->release = NULL;
  if (__atomic_sub_fetch(&p->live, 1, __ATOMIC_ACQ_REL) == 0) end(p);
}

void foreign_give(struct foreign_producer* p, int32_t device_type, int64_t device_id, struct ArrowDeviceArray* out) {
  memset(out, 0, sizeof *out);
  out->array = p->nodes[0].array;
  out->device_type = p->claims != 0 ? p->claims : device_type;
  out->device_id = device_id;
  out->sync_event = p->event == NULL ? NULL : &p->event;
}

struct counted_schema {
  struct foreign_producer* producer;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

static void release_schema(struct ArrowSchema* s) {
  struct counted_schema* c = s->private_data;
  s->release = c->release;
  s->private_data = c->private_data;
  struct foreign_producer* p = c->producer;
  free(c);
  s->release(s);
  s->release = NULL;
  __atomic_sub_fetch(&p->schemas, 1, __ATOMIC_ACQ_REL);
}

int foreign_count_schema(struct foreign_producer* p, struct ArrowSchema* s) {
  struct counted_schema* c = malloc(sizeof *c);
  if (c == NULL) return ENOMEM;
  *c = (struct counted_schema){p, s->release, s->private_data};
  s->release = release_schema;
  s->private_data = c;
  __atomic_add_fetch(&p->schemas, 1, __ATOMIC_ACQ_REL);
  return 0;
}

int64_t foreign_load(int64_t* count) { return __atomic_load_n(count, __ATOMIC_ACQUIRE); }

void foreign_end(struct ArrowArray* a) { a->release(a); }
