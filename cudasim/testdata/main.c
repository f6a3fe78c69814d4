/* rules --list, rules NAME; a rule's other process: rules NAME IN OUT */
#include "rules.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct rule *rules;

void add_rule(struct rule *rule) {
  rule->next = rules;
  rules = rule;
}

void fail(const char *file, int line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "%s:%d: ", file, line);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  _exit(1); /* not exit: threads may hold locks that its handlers wait for */
}

void check_result(const char *file, int line, const char *call, int got, int want) {
  if (got == want) return;
  const char *got_name = NULL, *want_name = NULL;
  cuGetErrorName(got, &got_name);
  cuGetErrorName(want, &want_name);
  fail(file, line, "%s is %s (%d), want %s (%d)", call, got_name ? got_name : "?", got, want_name ? want_name : "?",
       want);
}

static int used[64], uses;

CUcontext use(int ordinal) {
  CUdevice device;
  CUcontext context;
  OK(cuInit(0));
  OK(cuDeviceGet(&device, ordinal));
  OK(cuDevicePrimaryCtxRetain(&context, device));
  OK(cuCtxSetCurrent(context));
  used[uses++] = device;
  return context;
}

static CUstream make_stream(unsigned flags) {
  CUstream stream;
  OK(cuStreamCreate(&stream, flags));
  return stream;
}

CUstream new_stream(void) { return make_stream(CU_STREAM_NON_BLOCKING); }
CUstream new_blocking_stream(void) { return make_stream(CU_STREAM_DEFAULT); }

CUevent new_event(void) {
  CUevent event;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

CUdeviceptr new_memory(size_t size) {
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, size));
  return memory;
}

unsigned char *new_pinned(size_t size) {
  void *memory;
  OK(cuMemAllocHost_v2(&memory, size));
  return memory;
}

bool all_bytes(const unsigned char *bytes, unsigned char value, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (bytes[i] != value) return false;
  return true;
}

bool is_filled(CUdeviceptr memory, unsigned char value, size_t size) {
  unsigned char *bytes = malloc(size);
  OK(cuMemcpyDtoH_v2(bytes, memory, size));
  bool is = all_bytes(bytes, value, size);
  free(bytes);
  return is;
}

static char *find(const char *key, char **text) {
  size_t size = 1 << 16, enough;
  *text = NULL;
  do {
    *text = realloc(*text, size);
    enough = cudasim_report(*text, size);
  } while (enough > size && (size = enough));
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  char *found = strstr(*text, quoted);
  if (found == NULL) fail(__FILE__, __LINE__, "the report has no %s: %s", quoted, *text);
  return found + strlen(quoted);
}

long long reported(const char *key, int index) {
  char *text, *at = find(key, &text);
  at += strspn(at, " [");
  for (int i = 0; i < index; i++) at = strchr(at, ',') + 1;
  long long value = strtoll(at, NULL, 10);
  free(text);
  return value;
}

bool reports(const char *list, const char *needle) {
  char *text, *at = find(list, &text);
  char *end = strchr(at, ']');
  *end = '\0';
  bool found = strstr(at, needle) != NULL;
  free(text);
  return found;
}

static void wait_at_gate(void *data) {
  struct gate *gate = data;
  gate->entered = true;
  while (!gate->open) nap(1);
}

void close_gate(struct gate *gate, CUstream stream) {
  gate->entered = gate->open = false;
  OK(cuLaunchHostFunc(stream, wait_at_gate, gate));
}

void open_gate(struct gate *gate) { gate->open = true; }

static void be_late(void *data) {
  nap(30);
  *(atomic_bool *)data = true;
}

void queue_late(atomic_bool *done, CUstream stream) {
  *done = false;
  OK(cuLaunchHostFunc(stream, be_late, done));
}

static void *run_thread(void *data) {
  struct thread *thread = data;
  thread->run(thread->data);
  return NULL;
}

void start(struct thread *thread, void (*run)(void *), void *data) {
  thread->run = run;
  thread->data = data;
  CHECK(pthread_create(&thread->id, NULL, run_thread, thread) == 0);
}

void join(struct thread *thread) { CHECK(pthread_join(thread->id, NULL) == 0); }

void on_thread(void (*run)(void *), void *data) {
  struct thread thread;
  start(&thread, run, data);
  join(&thread);
}

static sigjmp_buf after_fault;

static void on_fault(int signal) { siglongjmp(after_fault, signal); }

static bool touch(volatile char *address, bool write) {
  struct sigaction handler = {.sa_handler = on_fault}, segv, bus;
  volatile bool touched = false;
  sigaction(SIGSEGV, &handler, &segv);
  sigaction(SIGBUS, &handler, &bus);
  if (sigsetjmp(after_fault, 1) == 0) {
    char c = *address;
    if (write) *address = c;
    touched = true;
  }
  sigaction(SIGSEGV, &segv, NULL);
  sigaction(SIGBUS, &bus, NULL);
  return touched;
}

bool host_reads(const volatile void *address) { return touch((volatile char *)(uintptr_t)address, false); }
bool host_writes(volatile void *address) { return touch(address, true); }

double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void nap(int milliseconds) {
  struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  nanosleep(&t, NULL);
}

static const char *or_none(const char *s) { return s == NULL ? "" : s; }

static const struct rule *current;
struct peer parent;

/* The child does nothing but start the program: a driver does not work there. */
void start_peer(struct peer *peer) {
  int to[2], from[2];
  char in[16], out[16];
  CHECK(pipe(to) == 0 && pipe(from) == 0);
  snprintf(in, sizeof in, "%d", to[0]);
  snprintf(out, sizeof out, "%d", from[1]);
  peer->id = fork();
  CHECK(peer->id >= 0);
  if (peer->id == 0) {
    close(to[1]);
    close(from[0]);
    setenv("CUDASIM", or_none(current->options), 1);
    execl("/proc/self/exe", "rules", current->name, in, out, NULL);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  peer->in = from[0];
  peer->out = to[1];
}

static int reap(struct peer *peer) {
  int status = -1;
  CHECK(waitpid(peer->id, &status, 0) == peer->id);
  close(peer->in);
  close(peer->out);
  return status;
}

void end_peer(struct peer *peer) { SAME(reap(peer), 0); }

void kill_peer(struct peer *peer) {
  CHECK(kill(peer->id, SIGKILL) == 0);
  reap(peer);
}

void say(const struct peer *to, const void *bytes, size_t size) { CHECK(write(to->out, bytes, size) == (ssize_t)size); }

void hear(const struct peer *from, void *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t n = read(from->in, (char *)bytes + done, size - done);
    if (n <= 0) fail(__FILE__, __LINE__, "the other process says nothing more");
    done += (size_t)n;
  }
}

static void be_peer(const struct rule *r, const char *in, const char *out) {
  parent = (struct peer){.in = atoi(in), .out = atoi(out)};
  r->peer();
  while (uses > 0) OK(cuDevicePrimaryCtxRelease_v2(used[--uses]));
  if (reports("leaks", "\"")) fail(__FILE__, __LINE__, "the other process leaked");
  SAME(reports("violations", "\""), r->peer_violates);
}

static void run(const struct rule *r) {
  r->check();
  while (uses > 0) OK(cuDevicePrimaryCtxRelease_v2(used[--uses]));
}

int main(int argc, char **argv) {
  if (argc != 2 && argc != 4) fail(__FILE__, __LINE__, "usage: rules --list | rules NAME");
  bool list = strcmp(argv[1], "--list") == 0;
  for (struct rule *r = rules; r != NULL; r = r->next) {
    if (list) {
      printf("%s\t%s\t%s\t%s\t%d\t%d\t%d\n", r->name, or_none(r->options), or_none(r->leaks), or_none(r->missing),
             r->violates, r->races, r->unreported);
    } else if (strcmp(argv[1], r->name) == 0) {
      alarm(30); /* a rule that waits for ever fails */
      current = r;
      argc == 4 ? be_peer(r, argv[2], argv[3]) : run(r);
      return 0;
    }
  }
  if (!list) fail(__FILE__, __LINE__, "no rule %s", argv[1]);
  return 0;
}
