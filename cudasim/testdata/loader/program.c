/* Loads and unloads a library that calls the driver from its constructor and its destructor, while another thread
 * calls the driver from places that it has not called it from before. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OK(condition)                                         \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      _exit(1);                                               \
    }                                                         \
  } while (0)

static void *driver, *context;
static atomic_int ready, busy, begun;

static void find(const char *name, void *function) { OK(*(void **)function = dlsym(driver, name)); }

/* The library calls it. The other thread shall be in its call meanwhile, so the last calls come after it has begun. */
void call_the_driver(void);
void call_the_driver(void) {
  int (*get_version)(int *), version;
  find("cuDriverGetVersion", &get_version);
  atomic_store(&busy, 1);
  while (!atomic_load(&begun)) sched_yield();
  for (int i = 0; i < 300; i++) {
    OK(!get_version(&version));
    usleep(10);
  }
}

static int (*create)(void **, unsigned), (*destroy)(void *), (*set_current)(void *), (*init)(unsigned);
static int (*get_address)(const char *, void **, int, unsigned long long), (*retain)(void **, int), (*release)(int);

static void await_library(void) {
  OK(!set_current(context));
  atomic_store(&ready, 1);
  while (!atomic_load(&busy)) sched_yield();
  atomic_store(&begun, 1);
}

static void *make_one(void *data) {
  void *event;
  await_library();
  OK(!create(&event, 0));
  OK(!destroy(event));
  return data;
}

/* The same at other places, for the second time. */
static void *make_another(void *data) {
  void *event;
  await_library();
  OK(!create(&event, 0));
  OK(!destroy(event));
  return data;
}

static void *get_a_function(void *data) {
  void *function;
  await_library();
  OK(!get_address("cuInit", &function, 12000, 0));
  return data;
}

static pthread_t start(void *(*other)(void *)) {
  pthread_t thread;
  ready = busy = begun = 0;
  OK(!pthread_create(&thread, NULL, other, NULL));
  while (!atomic_load(&ready)) sched_yield();
  return thread;
}

static void load_beside(void *(*other)(void *), const char *library) {
  pthread_t thread = start(other);
  void *handle = dlopen(library, RTLD_NOW);
  OK(handle);
  OK(!pthread_join(thread, NULL));
  thread = start(make_another);
  OK(!dlclose(handle));
  OK(!pthread_join(thread, NULL));
}

int main(int argc, char **argv) {
  OK(argc == 2);
  alarm((unsigned)atoi(getenv("RULE_SECONDS")));
  OK(driver = dlopen("libcuda.so.1", RTLD_NOW));
  find("cuInit", &init);
  find("cuDevicePrimaryCtxRetain", &retain);
  find("cuDevicePrimaryCtxRelease_v2", &release);
  find("cuCtxSetCurrent", &set_current);
  find("cuEventCreate", &create);
  find("cuEventDestroy_v2", &destroy);
  find("cuGetProcAddress", &get_address);
  OK(!init(0) && !retain(&context, 0));
  load_beside(make_one, argv[1]);
  load_beside(get_a_function, argv[1]);
  return release(0);
}
