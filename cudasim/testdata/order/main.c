/* order --list                             programs: name, proof, both calls, options
 * order NAME,... right|wrong|both RUNS     runs one variant, or both in turn, and judges each run
 * order NAME right|wrong exit              runs it once and leaves the report to the exit */
#include "order.h"

#include <ctype.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

bool wrong;
atomic_bool flag;

static struct program *programs;
static const struct program *program;
static long run_number;
static atomic_int marks;

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

void add_program(struct program *p) {
  p->next = programs;
  programs = p;
}

/* Ends the process: not by exit, whose handlers wait for locks that threads may hold. */
_Noreturn static void fail(const char *format, va_list args) {
  if (program != NULL) fprintf(stderr, "%s, %s, run %ld: ", program->name, wrong ? "wrong" : "right", run_number);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  _exit(1);
}

void stop(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fail(format, args);
}

void differs(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fail(format, args);
}

void skip(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fail(format, args);
}

/* The first calls of the thread that runs the program: that returned after the hold was ended for it, and that failed.
 */
static struct {
  pthread_t thread;
  bool holds;
  const char *held_up, *failed;
} seen;

void hold(CUstream stream) {
  close_gate(stream);
  seen.holds = true;
}

void mark(void) {
  marks++;
  if (seen.holds) watch(wrong ? 20 : 20000);
}

void let_go(void) {
  unwatch();
  seen.holds = false;
  open_gate();
}

static bool is_seen(const char *call) {
  const size_t length = program->calls[0] ? strlen(program->calls[0]) : 0;
  return call != NULL && strncmp(call, program->calls[0], length) == 0 && !in_word(call[length]);
}

/* Work that meets freed memory ends its context, if it happens to come that late. Only
 * wrong variants do it. */
void check_success(const char *call, CUresult got) {
  const bool own = program != NULL && pthread_equal(seen.thread, pthread_self());
  if (own && seen.holds && gate_is_open() && seen.held_up == NULL) seen.held_up = call;
  if (own && wrong && program->proof == FAILURE && got != CUDA_SUCCESS) {
    if (seen.failed == NULL || is_seen(call)) seen.failed = call;
    return;
  }
  if (got != CUDA_SUCCESS && !(wrong && got == CUDA_ERROR_ILLEGAL_ADDRESS)) stop("%s is %d", call, got);
}

void check_result(const char *call, CUresult got, CUresult want, CUresult or_this) {
  if (got != want && got != or_this) stop("%s is %d, not %d", call, got, want);
}

void check_same(const char *what, long long got, long long want) {
  if (got != want) stop("%s is %lld, not %lld", what, got, want);
}

/* ---- the report ---- */

/* Calls see for each text of the list of violations, which it cuts out of the report. */
static int each_violation(char *text, bool (*see)(const char *violation)) {
  int seen = 0;
  char *at = strstr(text, "\"violations\":");
  if (at == NULL || (at = strchr(at, '[')) == NULL) stop("no violations in: %s", text);
  while (*++at != ']' && *at != 0) {
    if (*at != '"') continue;
    char *start = ++at;
    for (; *at != '"'; at++)
      if (*at == 0 || (*at == '\\' && *++at == 0)) stop("no JSON: %s", text);
    *at = 0;
    seen += see(start);
  }
  return seen;
}

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
  char *text = simulator_report();
  int n = each_violation(text, see);
  free(text);
  return n;
}

static void judge_right(void) {
  if (seen.held_up != NULL) stop("a correct program waits in %s", seen.held_up);
  if (count_violations(is_any) > 0) stop("a correct program is reported");
}

static void judge_wrong(void) {
  const char *const one = program->proof == HELD_UP ? seen.held_up : program->proof == FAILURE ? seen.failed : NULL;
  if (one != NULL && is_seen(one) && count_violations(is_any) == 0) return;
  if (program->proof == HELD_UP || program->proof == FAILURE)
    stop("not %s alone, but %s %s", program->calls[0], one ? one : "no call",
         program->proof == HELD_UP ? "waits" : "fails");
  bool silent = program->proof != GARBAGE && count_violations(is_expected) == 0;
  if (!silent && count_violations(is_unexpected) == 0) return;
  count_violations(is_any);
  stop("%s and %s are named by %s", program->calls[0], program->calls[1],
       silent ? "no violation" : "a violation, but another one names neither");
}

/* ---- the objects of a run, and its end ---- */

enum { LIMIT = 64, DEVICES = 4 };

static struct {
  void *registered[LIMIT], *pageable[LIMIT];
  CUcontext contexts[DEVICES];
  struct {
    const unsigned char *host;
    CUdeviceptr device;
    CUcontext context;
    unsigned char value;
  } expected[LIMIT];
  int registered_count, pageable_count, context_count, expected_count;
} own;

#define ADD(list, count, value)                          \
  do {                                                   \
    CHECK(count < (int)(sizeof(list) / sizeof *(list))); \
    (list)[count++] = (value);                           \
  } while (0)

CUcontext new_context(int ordinal) {
  CUcontext context;
  OK(cuInit(0));
  OK(cuCtxCreate_v2(&context, 0, ordinal));
  ADD(own.contexts, own.context_count, context);
  return context;
}

CUdeviceptr new_pooled(CUstream stream) {
  CUdeviceptr memory = allocate(N, stream);
  made(MEMORY, (void *)memory);
  return memory;
}

unsigned char *new_ones(size_t size) {
  unsigned char *memory = new_pinned(size);
  memset(memory, 1, size);
  return memory;
}

/* Not on the stack of a program: a pending copy outlives it. */
void *new_pageable(size_t size) {
  void *memory = malloc(size);
  CHECK(memory != NULL);
  ADD(own.pageable, own.pageable_count, memory);
  memset(memory, 1, size);
  return memory;
}

void *new_registered(size_t size) {
  void *memory = new_pageable(size);
  OK(cuMemHostRegister_v2(memory, size, 0));
  ADD(own.registered, own.registered_count, memory);
  return memory;
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

static void add_expected(const unsigned char *host, CUdeviceptr device, unsigned char value) {
  int i = own.expected_count;
  CHECK(i < LIMIT);
  own.expected[i].host = host;
  own.expected[i].device = device;
  own.expected[i].value = value;
  OK(cuCtxGetCurrent(&own.expected[i].context));
  own.expected_count++;
}

void expect(CUdeviceptr memory, unsigned char value) { add_expected(NULL, memory, value); }
void expect_host(const void *memory, unsigned char value) { add_expected(memory, 0, value); }

static void check_expected(void) {
  unsigned char bytes[N];
  for (int i = 0; i < own.expected_count && !wrong; i++) {
    const unsigned char *host = own.expected[i].host;
    OK(cuCtxSetCurrent(own.expected[i].context));
    if (host != NULL)
      memcpy(bytes, host, N);
    else
      OK(cuMemcpyDtoH_v2(bytes, own.expected[i].device, N));
    for (int k = 0; k < N; k++) SAME(bytes[k], own.expected[i].value);
  }
}

/* A context of a wrong variant may be broken; a new one takes its place, and what was made went with it. */
static void settle_contexts(void) {
  bool broken[DEVICES] = {false}, any = false;
  for (int d = 0; d < DEVICES; d++) {
    if (!is_used(d)) continue;
    use(d);
    CUresult r = cuCtxSynchronize();
    broken[d] = wrong && r == CUDA_ERROR_ILLEGAL_ADDRESS;
    any = any || broken[d];
    if (!broken[d]) OK(r);
  }
  for (int i = 0; i < own.context_count; i++) {
    OK(cuCtxSetCurrent(own.contexts[i]));
    OK(cuCtxSynchronize());
  }
  for (int d = 0; d < DEVICES; d++)
    if (broken[d]) reset(d);
  if (!any) return;
  forget_objects();
  memset(&own, 0, sizeof own);
}

static void clean_up(void) {
  for (int i = 0; i < own.registered_count; i++) OK(cuMemHostUnregister(own.registered[i]));
  end_rule();
  for (int i = 0; i < own.pageable_count; i++) free(own.pageable[i]);
  for (int i = 0; i < own.context_count; i++) OK(cuCtxDestroy_v2(own.contexts[i]));
  memset(&own, 0, sizeof own);
  OK(cuCtxSetCurrent(NULL));
}

static void run_once(void) {
  marks = 0;
  flag = false;
  memset(&seen, 0, sizeof seen);
  seen.thread = pthread_self();
  use(0);
  begin_rule();
  program->run();
  if (marks != (program->proof != NOTHING)) stop("%d places are marked", (int)marks);
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
  if (p == NULL) stop("no program %s", name);
  return p;
}

static void run_all(bool both, long runs) {
  const bool first = wrong;
  if (program->proof == HELD_UP) runs = (runs + 4) / 5; /* each sleeps until its watchdog wakes up */
  for (run_number = 0; run_number < runs; run_number++) {
    run_and_judge();
    wrong = both;
    if (both) run_and_judge();
    wrong = first;
  }
}

int main(int argc, char **argv) {
  load_driver();
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    list();
    return 0;
  }
  if (argc != 4) stop("usage: order --list | order NAME,... right|wrong|both RUNS|exit");
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
  return 0;
}
