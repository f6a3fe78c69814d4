#include "library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

const char* library_load(const char* path, struct library* out) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) return dlerror();
  const char* names[] = {"peer_version", "peer_open", "peer_run", "peer_close", "peer_error"};
  void* found[5];
  for (size_t i = 0; i < 5; i++) {
    found[i] = dlsym(handle, names[i]);
    if (found[i] == NULL) return dlerror();
  }
  memcpy(out, found, sizeof found); /* ISO C has no conversion from void* to a function */
  return NULL;
}

void* library_open(const struct library* l, const char* operation, struct ArrowSchema* schema,
                   struct ArrowDeviceArray* batch, struct bench_producer* producer, struct bench_consumer* consumer) {
  return l->open(operation, schema, batch, producer, consumer);
}

const char* library_error(const struct library* l) {
  const char* text = l->error();
  return text[0] == 0 ? NULL : text;
}

const char* library_run(const struct library* l, void* operation, struct consumer* consumer, int64_t n) {
  int code = l->run(operation, n);
  consumer_flush(consumer);
  return code == 0 ? NULL : l->error();
}

void library_close(const struct library* l, void* operation) { l->close(operation); }

const char* library_version(const struct library* l) { return l->version(); }
