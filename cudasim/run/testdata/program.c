/* A program for the simulated driver, which it finds as NVIDIA's:
 *
 *   program WHAT HOW
 *
 * What it does, and how it ends. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long address;

static void fail(const char *what) {
  fprintf(stderr, "program: %s\n", what);
  _exit(99);
}

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition))

static void *driver;

/* Calls a function of the driver. All calls but a few are made here; a test gives the function another name, and
 * exports it. */
int call(const char *name, void *a, void *b, void *c, void *d);
int call(const char *name, void *a, void *b, void *c, void *d) {
  int (*function)(void *, void *, void *, void *);
  *(void **)&function = dlsym(driver, name);
  CHECK(function != NULL);
  return function(a, b, c, d);
}

#define P(argument) ((void *)(uintptr_t)(argument))
#define CALL(name, a, b, c, d) CHECK(call(name, P(a), P(b), P(c), P(d)) == 0)

static void *context;

static void use(void) {
  CALL("cuInit", 0, 0, 0, 0);
  CALL("cuDevicePrimaryCtxRetain", &context, 0, 0, 0);
  CALL("cuCtxSetCurrent", context, 0, 0, 0);
}

static void leave(void) {
  CALL("cuCtxSetCurrent", 0, 0, 0, 0);
  CALL("cuDevicePrimaryCtxRelease_v2", 0, 0, 0, 0);
}

static address new_memory(size_t size) {
  address memory;
  CALL("cuMemAlloc_v2", &memory, size, 0, 0);
  return memory;
}

/* From one stream to another, with or without a wait between the two. */
static void copies(int waits) {
  char *host;
  void *first, *second;
  address memory = new_memory(64);
  CALL("cuMemAllocHost_v2", &host, 128, 0, 0);
  CALL("cuStreamCreate", &first, 1, 0, 0);
  CALL("cuStreamCreate", &second, 1, 0, 0);
  CALL("cuMemcpyHtoDAsync_v2", memory, host, 64, first);
  if (waits) CALL("cuStreamSynchronize", first, 0, 0, 0);
  CALL("cuMemcpyDtoHAsync_v2", host + 64, memory, 64, second);
  CALL("cuStreamSynchronize", first, 0, 0, 0);
  CALL("cuStreamSynchronize", second, 0, 0, 0);
  CALL("cuStreamDestroy_v2", first, 0, 0, 0);
  CALL("cuStreamDestroy_v2", second, 0, 0, 0);
  CALL("cuMemFreeHost", host, 0, 0, 0);
  CALL("cuMemFree_v2", memory, 0, 0, 0);
}

static void right(void) {
  use();
  copies(1);
  leave();
}

static void violate(void) {
  use();
  copies(0);
  leave();
}

static void violate_much(void) {
  use();
  for (int i = 0; i < 37; i++) copies(0);
  leave();
}

static void leak(void) {
  use();
  new_memory(4096);
}

static void leak_much(void) {
  void *event;
  use();
  for (int i = 0; i < 30; i++) CALL("cuEventCreate", &event, 0, 0, 0);
}

static void leak_very_much(void) {
  void *event, *stream;
  use();
  for (int i = 0; i < 17000; i++) CALL("cuEventCreate", &event, 0, 0, 0);
  CALL("cuStreamCreate", &stream, 1, 0, 0);
}

static void violate_and_leak(void) {
  use();
  copies(0);
  new_memory(4096);
}

static void nothing(void) {}

static void wait_for(pid_t child) {
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* As with a driver, nothing works in a child that was forked later. What its parent has is not its own. */
static void fork_after(void) {
  use();
  address memory = new_memory(4096);
  pid_t child = fork();
  if (!child) {
    CHECK(call("cuMemFree_v2", P(memory), 0, 0, 0) == 3);
    exit(0);
  }
  wait_for(child);
  CALL("cuMemFree_v2", memory, 0, 0, 0);
  leave();
}

/* Both processes have a machine each. */
static void fork_before(void) {
  int version;
  CALL("cuDriverGetVersion", &version, 0, 0, 0);
  pid_t child = fork();
  if (!child) {
    violate_and_leak();
    _exit(0);
  }
  violate();
  wait_for(child);
}

static void read_device_memory(address memory) {
  void (*host_read)(address, size_t);
  *(void **)&host_read = dlsym(driver, "cudasim_host_read");
  CHECK(host_read != NULL);
  host_read(memory, 4);
}

/* What the child reads is still memory of its parent's machine, of which it has a copy. */
static void fork_between(void) {
  use();
  address memory = new_memory(64);
  read_device_memory(memory);
  pid_t child = fork();
  if (!child) {
    read_device_memory(memory);
    CALL("cuDriverGetVersion", &child, 0, 0, 0);
    read_device_memory(memory);
    _exit(0);
  }
  wait_for(child);
  CALL("cuMemFree_v2", memory, 0, 0, 0);
  leave();
}

/* A child that has let go of the standard streams, and lives until descriptor 3 has nothing more to read. */
static void leave_a_child(void) {
  int lives[2];
  char byte;
  CHECK(pipe(lives) == 0);
  if (fork()) {
    CHECK(read(lives[0], &byte, 1) == 1);
    return;
  }
  use();
  new_memory(64);
  for (int i = 0; i < 3; i++) close(i);
  CHECK(write(lives[1], "", 1) == 1);
  while (read(3, &byte, 1) > 0) continue;
  CHECK(write(4, "ended", 5) == 5);
  _exit(0);
}

/* Prints each signal, until SIGTERM. */
static void print_signals(void) {
  sigset_t all;
  int got;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  puts("ready");
  do {
    fflush(stdout);
    CHECK(sigwait(&all, &got) == 0);
    printf("%d\n", got);
  } while (got != SIGTERM);
}

static void wait_for_a_line(void) {
  puts("ready");
  fflush(stdout);
  while (getchar() != '\n') continue;
  puts("continued");
  fflush(stdout);
}

/* What comes in by one that was inherited goes out by another. */
static void use_descriptors(void) {
  char text[16];
  ssize_t n = read(3, text, sizeof text);
  CHECK(n > 0 && write(4, text, (size_t)n) == n);
}

static const struct {
  const char *name;
  void (*does)(void);
} all[] = {
    {"right", right},
    {"violate", violate},
    {"violate-much", violate_much},
    {"leak", leak},
    {"leak-much", leak_much},
    {"leak-very-much", leak_very_much},
    {"violate-and-leak", violate_and_leak},
    {"nothing", nothing},
    {"fork-after", fork_after},
    {"fork-before", fork_before},
    {"fork-between", fork_between},
    {"leave-a-child", leave_a_child},
    {"print-signals", print_signals},
    {"wait-for-a-line", wait_for_a_line},
    {"use-descriptors", use_descriptors},
};

static int end(const char *how) {
  if (!strcmp(how, "_exit")) _exit(0);
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "crash")) {
    int *volatile nowhere = (int *)8; /* which the compiler does not see */
    *nowhere = 0;
  }
  if (!strcmp(how, "killed")) raise(SIGKILL);
  return atoi(how); /* returns it from main */
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(driver != NULL);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!strcmp(all[i].name, argv[1])) {
      all[i].does();
      return end(argv[2]);
    }
  fail("no such thing to do");
}
