/* order --list                             programs: name, proof, both calls, options
 * order NAME,... right|wrong|both RUNS     runs one variant, or both in turn, and judges each run
 * order NAME right|wrong exit              runs it once and leaves the report to the exit */
#include "order.h"

#include <ctype.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

bool wrong;

static struct program *programs;
static const struct program *program;
static long run_number;
static atomic_int marks;

void add_program(struct program *p) {
  p->next = programs;
  programs = p;
}

void mark(void) { marks++; }

void fail(const char *file, int line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (program != NULL) fprintf(stderr, "%s, %s, run %ld: ", program->name, wrong ? "wrong" : "right", run_number);
  fprintf(stderr, "%s:%d: ", file, line);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  _exit(1); /* not exit: threads may hold locks that its handlers wait for */
}

/* Work that meets freed memory ends its context, if it happens to come that late. Only
 * wrong variants do it. */
void check_result(const char *file, int line, const char *call, int got, int want) {
  if (got == want || (wrong && want == CUDA_SUCCESS && got == CUDA_ERROR_ILLEGAL_ADDRESS)) return;
  fail(file, line, "%s is %d, want %d", call, got, want);
}

/* ---- the report ---- */

static char *report(void) {
  size_t size = cudasim_report(NULL, 0), enough;
  char *text = malloc(size);
  while ((enough = cudasim_report(text, size)) > size) {
    size = enough;
    text = realloc(text, size);
  }
  return text;
}

/* Calls see for each text of the list of violations, which it cuts out of the report. */
static int each_violation(char *text, bool (*see)(const char *violation)) {
  int seen = 0;
  char *at = strstr(text, "\"violations\":");
  if (at == NULL || (at = strchr(at, '[')) == NULL) fail(__FILE__, __LINE__, "no violations in: %s", text);
  while (*++at != ']' && *at != 0) {
    if (*at != '"') continue;
    char *start = ++at;
    for (; *at != '"'; at++)
      if (*at == 0 || (*at == '\\' && *++at == 0)) fail(__FILE__, __LINE__, "no JSON: %s", text);
    *at = 0;
    seen += see(start);
  }
  return seen;
}

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* How often a whole word, or a text that is no word, occurs. */
static int occurrences(const char *text, const char *word) {
  int n = 0;
  const size_t length = strlen(word);
  for (const char *at = text; (at = strstr(at, word)) != NULL; at += length)
    n += (at == text || !in_word(at[-1])) && !in_word(at[length]);
  return n;
}

static bool is_any(const char *violation) {
  fprintf(stderr, "violation: %s\n", violation);
  return true;
}

/* Names both calls, or one of them twice if they are the same. */
static bool is_expected(const char *violation) {
  const char *const *calls = program->calls;
  int twice = strcmp(calls[0], calls[1]) == 0;
  return occurrences(violation, calls[0]) > twice && occurrences(violation, calls[1]) > twice;
}

/* Work that comes too late may be reported for another reason too, such as memory that was
 * freed meanwhile, but no other call may be accused. */
static bool is_unexpected(const char *violation) {
  if (program->proof == GARBAGE) return false;
  return occurrences(violation, program->calls[0]) == 0 && occurrences(violation, program->calls[1]) == 0;
}

/* The list of violations is cut up while it is read, so each question has a report of its own. */
static int count_violations(bool (*see)(const char *violation)) {
  char *text = report();
  int n = each_violation(text, see);
  free(text);
  return n;
}

static void judge_right(void) {
  if (count_violations(is_any) > 0) fail(__FILE__, __LINE__, "a correct program is reported");
}

static void judge_wrong(void) {
  bool silent = program->proof != GARBAGE && count_violations(is_expected) == 0;
  if (!silent && count_violations(is_unexpected) == 0) return;
  count_violations(is_any);
  fail(__FILE__, __LINE__, "%s and %s are named by %s", program->calls[0], program->calls[1],
       silent ? "no violation" : "a violation, but another one names neither");
}

/* ---- the objects of a run, and its end ---- */

enum { LIMIT = 64, DEVICES = 4 };

static struct {
  CUstream streams[LIMIT];
  CUevent events[LIMIT];
  CUdeviceptr memory[LIMIT];
  void *pinned[LIMIT], *registered[LIMIT], *pageable[LIMIT];
  CUcontext contexts[DEVICES];
  struct {
    const unsigned char *host;
    CUdeviceptr device;
    CUcontext context;
    unsigned char value;
  } expected[LIMIT];
  int stream_count, event_count, memory_count, pinned_count, registered_count, pageable_count, context_count,
      expected_count;
} made;

#define ADD(list, count, value)                          \
  do {                                                   \
    CHECK(count < (int)(sizeof(list) / sizeof *(list))); \
    (list)[count++] = (value);                           \
  } while (0)

/* Primary contexts live as long as the process: the state that the checker keeps per context must
 * stay valid over the runs. */
static CUcontext primary[DEVICES];
static int references[DEVICES];

CUcontext use(int ordinal) {
  if (primary[ordinal] == NULL) {
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary[ordinal], ordinal));
    references[ordinal]++;
  }
  OK(cuCtxSetCurrent(primary[ordinal]));
  return primary[ordinal];
}

CUcontext new_context(int ordinal) {
  CUcontext context;
  OK(cuInit(0));
  OK(cuCtxCreate_v2(&context, 0, ordinal));
  ADD(made.contexts, made.context_count, context);
  return context;
}

static CUstream make_stream(unsigned flags) {
  CUstream stream;
  OK(cuStreamCreate(&stream, flags));
  ADD(made.streams, made.stream_count, stream);
  return stream;
}

CUstream new_stream(void) { return make_stream(CU_STREAM_NON_BLOCKING); }
CUstream new_blocking_stream(void) { return make_stream(CU_STREAM_DEFAULT); }

CUevent new_event(void) {
  CUevent event;
  OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  ADD(made.events, made.event_count, event);
  return event;
}

static void keep(CUdeviceptr memory) { ADD(made.memory, made.memory_count, memory); }

CUdeviceptr new_memory(size_t size) {
  CUdeviceptr memory;
  OK(cuMemAlloc_v2(&memory, size));
  keep(memory);
  return memory;
}

CUdeviceptr new_managed(size_t size) {
  CUdeviceptr memory;
  OK(cuMemAllocManaged(&memory, size, CU_MEM_ATTACH_GLOBAL));
  keep(memory);
  return memory;
}

CUdeviceptr pooled(CUstream stream) {
  CUdeviceptr memory = 0;
  OK(cuMemAllocAsync(&memory, N, stream));
  return memory;
}

CUdeviceptr new_pooled(CUstream stream) {
  CUdeviceptr memory = pooled(stream);
  keep(memory);
  return memory;
}

unsigned char *new_pinned(size_t size) {
  void *memory;
  OK(cuMemAllocHost_v2(&memory, size));
  ADD(made.pinned, made.pinned_count, memory);
  memset(memory, 1, size);
  return memory;
}

/* Not on the stack of a program: a pending copy outlives it. */
void *new_pageable(size_t size) {
  void *memory = malloc(size);
  CHECK(memory != NULL);
  ADD(made.pageable, made.pageable_count, memory);
  memset(memory, 1, size);
  return memory;
}

void *new_registered(size_t size) {
  void *memory = new_pageable(size);
  OK(cuMemHostRegister_v2(memory, size, 0));
  ADD(made.registered, made.registered_count, memory);
  return memory;
}

void end_stream(CUstream stream) {
  int i = 0;
  while (made.streams[i] != stream) i++;
  made.streams[i] = made.streams[--made.stream_count];
  OK(cuStreamDestroy_v2(stream));
}

void end_event(CUevent event) {
  int i = 0;
  while (made.events[i] != event) i++;
  made.events[i] = made.events[--made.event_count];
  OK(cuEventDestroy_v2(event));
}

CUresult follow(CUstream later, CUstream earlier) {
  CUevent event = new_event();
  OK(cuEventRecord(event, earlier));
  return cuStreamWaitEvent(later, event, 0);
}

static void nap_briefly(void) { nanosleep(&(struct timespec){0, 20000}, NULL); }

CUresult poll_event(CUevent event) {
  CUresult r;
  while ((r = cuEventQuery(event)) == CUDA_ERROR_NOT_READY) nap_briefly();
  return r;
}

CUresult poll_stream(CUstream stream) {
  CUresult r;
  while ((r = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) nap_briefly();
  return r;
}

CUresult poll_elapsed(CUevent start, CUevent end) {
  CUresult r;
  float milliseconds;
  while ((r = cuEventElapsedTime(&milliseconds, start, end)) == CUDA_ERROR_NOT_READY) nap_briefly();
  return r;
}

void raise_flag(void *flag) { *(atomic_bool *)flag = true; }

void await_flag(void *flag) {
  while (!*(atomic_bool *)flag) nap_briefly();
}

static void *run_thread(void *data) {
  struct thread *thread = data;
  thread->run(thread->data);
  return NULL;
}

void on_thread(void (*run)(void *), void *data) {
  struct thread thread = {.run = run, .data = data};
  CHECK(pthread_create(&thread.id, NULL, run_thread, &thread) == 0);
  CHECK(pthread_join(thread.id, NULL) == 0);
}

static void add_expected(const unsigned char *host, CUdeviceptr device, unsigned char value) {
  int i = made.expected_count;
  CHECK(i < LIMIT);
  made.expected[i].host = host;
  made.expected[i].device = device;
  made.expected[i].value = value;
  OK(cuCtxGetCurrent(&made.expected[i].context));
  made.expected_count++;
}

void expect(CUdeviceptr memory, unsigned char value) { add_expected(NULL, memory, value); }
void expect_host(const void *memory, unsigned char value) { add_expected(memory, 0, value); }

static void check_expected(void) {
  unsigned char bytes[N];
  for (int i = 0; i < made.expected_count && !wrong; i++) {
    const unsigned char *host = made.expected[i].host;
    OK(cuCtxSetCurrent(made.expected[i].context));
    if (host != NULL)
      memcpy(bytes, host, N);
    else
      OK(cuMemcpyDtoH_v2(bytes, made.expected[i].device, N));
    for (int k = 0; k < N; k++) SAME(bytes[k], made.expected[i].value);
  }
}

/* A context of a wrong variant may be broken; a new one takes its place. */
static void settle_contexts(void) {
  bool broken[DEVICES] = {false};
  for (int d = 0; d < DEVICES; d++) {
    if (primary[d] == NULL) continue;
    use(d);
    CUresult r = cuCtxSynchronize();
    broken[d] = wrong && r == CUDA_ERROR_ILLEGAL_ADDRESS;
    if (!broken[d]) OK(r);
  }
  for (int i = 0; i < made.context_count; i++) {
    OK(cuCtxSetCurrent(made.contexts[i]));
    OK(cuCtxSynchronize());
  }
  for (int d = 0; d < DEVICES; d++) {
    if (!broken[d]) continue;
    OK(cuDevicePrimaryCtxReset_v2(d));
    primary[d] = NULL;
    memset(&made, 0, sizeof made); /* went with it */
  }
}

static void clean_up(void) {
  for (int i = 0; i < made.stream_count; i++) OK(cuStreamDestroy_v2(made.streams[i]));
  for (int i = 0; i < made.event_count; i++) OK(cuEventDestroy_v2(made.events[i]));
  for (int i = 0; i < made.memory_count; i++) OK(cuMemFree_v2(made.memory[i]));
  for (int i = 0; i < made.registered_count; i++) OK(cuMemHostUnregister(made.registered[i]));
  for (int i = 0; i < made.pinned_count; i++) OK(cuMemFreeHost(made.pinned[i]));
  for (int i = 0; i < made.pageable_count; i++) free(made.pageable[i]);
  for (int i = 0; i < made.context_count; i++) OK(cuCtxDestroy_v2(made.contexts[i]));
  memset(&made, 0, sizeof made);
  OK(cuCtxSetCurrent(NULL));
}

static void run_once(void) {
  marks = 0;
  program->run();
  if (marks != (program->proof != NOTHING)) fail(__FILE__, __LINE__, "%d places are marked", (int)marks);
}

static void run_and_judge(void) {
  run_once();
  cudasim_drain();
  if (wrong) judge_wrong();
  settle_contexts();
  check_expected();
  clean_up();
  if (!wrong) judge_right();
  cudasim_forget_violations();
}

static void list(void) {
  for (const struct program *p = programs; p != NULL; p = p->next)
    printf("%s\t%d\t%s\t%s\t%s\n", p->name, p->proof, p->calls[0] ? p->calls[0] : "", p->calls[1] ? p->calls[1] : "",
           p->options);
}

static const struct program *find(const char *name) {
  const struct program *p = programs;
  while (p != NULL && strcmp(p->name, name) != 0) p = p->next;
  if (p == NULL) fail(__FILE__, __LINE__, "no program %s", name);
  return p;
}

static void run_all(bool both, long runs) {
  const bool first = wrong;
  for (run_number = 0; run_number < runs; run_number++) {
    run_and_judge();
    wrong = both;
    if (both) run_and_judge();
    wrong = first;
  }
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    list();
    return 0;
  }
  if (argc != 4) fail(__FILE__, __LINE__, "usage: order --list | order NAME,... right|wrong|both RUNS|exit");
  wrong = strcmp(argv[2], "wrong") == 0;
  for (char *name = strtok(argv[1], ","); name != NULL; name = strtok(NULL, ",")) {
    program = find(name);
    alarm(60); /* a program that waits for ever fails */
    if (strcmp(argv[3], "exit") == 0) {
      run_once();
      return 0;
    }
    run_all(strcmp(argv[2], "both") == 0, strtol(argv[3], NULL, 10));
  }
  for (int d = 0; d < DEVICES; d++)
    while (references[d]-- > 0) OK(cuDevicePrimaryCtxRelease_v2(d));
  return 0;
}
