/* A process that runs rules. What it finds goes to its parent, a line each. */
#include "rules.h"

#include <stdarg.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

const char* const basis_words[] = {"manual", "seen on drivers", "simulator, where the manual is silent"};

static int output;
static bool is_peer;
static const struct rule* current;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char differences[3000];

static void send_line(const char* format, ...) __attribute__((format(printf, 1, 2)));

static void send_line(const char* format, ...) {
  char line[4000];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line, sizeof line - 1, format, args);
  va_end(args);
  if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
  for (int i = 0; i < n; i++)
    if (line[i] == '\n') line[i] = ' ';
  line[n++] = '\n';
  if (write(output, line, (size_t)n) != n) _exit(1);
}

const char* error_name(CUresult result) {
  static _Thread_local char number[2][32];
  static _Thread_local int turn;
  const char* name = NULL;
  CUresult (*get)(CUresult, const char**);
  *(void**)&get = find_function("cuGetErrorName");
  if (get != NULL && get(result, &name) == CUDA_SUCCESS && name != NULL) return name;
  turn = !turn;
  snprintf(number[turn], sizeof number[turn], "error %d", (int)result);
  return number[turn];
}

static void add_difference(const char* format, va_list args) {
  char text[600];
  vsnprintf(text, sizeof text, format, args);
  pthread_mutex_lock(&mutex);
  size_t length = strlen(differences);
  snprintf(differences + length, sizeof differences - length, "%s%s", length == 0 ? "" : "; ", text);
  pthread_mutex_unlock(&mutex);
}

void differs(const char* format, ...) {
  va_list args;
  va_start(args, format);
  add_difference(format, args);
  va_end(args);
}

static void send_failure(void) {
  if (is_peer) {
    send_line("%s", differences);
    return;
  }
  send_line("FAIL %s: %s: %s here: %s", current->name, basis_words[current->basis], current->manual, differences);
}

_Noreturn void stop(const char* format, ...) {
  va_list args;
  va_start(args, format);
  add_difference(format, args);
  va_end(args);
  if (current != NULL)
    send_failure();
  else
    send_line("stop %s", differences);
  _exit(0); /* not exit: threads may wait at the gate */
}

_Noreturn void skip(const char* format, ...) {
  char text[300];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (current == NULL) stop("%s", text);
  send_line("skip %s: %s", current->name, text);
  _exit(0);
}

void check_result(const char* call, CUresult got, CUresult want, CUresult or_this) {
  if (got == want || got == or_this) return;
  if (want == or_this)
    differs("%s is %s, not %s", call, error_name(got), error_name(want));
  else
    differs("%s is %s, neither %s nor %s", call, error_name(got), error_name(want), error_name(or_this));
}

void check_success(const char* call, CUresult got) {
  if (got != CUDA_SUCCESS) stop("%s is %s, not CUDA_SUCCESS", call, error_name(got));
}

void check_refused(const char* call, CUresult got) {
  if (got == CUDA_SUCCESS) differs("%s is CUDA_SUCCESS, not an error", call);
}

void check_same(const char* what, long long got, long long want) {
  if (got != want) differs("%s is %lld, not %lld", what, got, want);
}

/* ---- devices ---- */

static int devices(void) {
  int count = 0;
  OK(cuDeviceGetCount(&count));
  return count;
}

static bool peers(void) {
  int there = 0, back = 0;
  if (devices() < 2) return false;
  OK(cuDeviceCanAccessPeer(&there, 0, 1));
  OK(cuDeviceCanAccessPeer(&back, 1, 0));
  return there && back;
}

/* What is lacking for the rule, or NULL. */
static const char* lacking(unsigned needs) {
  if (needs & TWO && devices() < 2) return "two devices";
  if (needs & PEERS && !peers()) return "two devices with peer access";
  if (needs & POOLS && !attribute(ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0)) return "memory pools";
  if (needs & MANAGED && !attribute(ATTRIBUTE_MANAGED_MEMORY, 0)) return "managed memory";
  if (needs & CONCURRENT && !attribute(ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0)) return "concurrent managed access";
  if (needs & NO_PAGEABLE && attribute(ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0))
    return "a device that does not reach pageable memory";
  if (needs & PAGEABLE && !attribute(ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0))
    return "a device that reaches pageable memory";
  if (needs & COHERENT && !attribute(ATTRIBUTE_PAGEABLE_HOST_TABLES, 0))
    return "a device that uses the page tables of the host";
  if (needs & REGISTER && !attribute(ATTRIBUTE_HOST_REGISTER_SUPPORTED, 0)) return "page-locking of existing memory";
  if (needs & IPC && !attribute(ATTRIBUTE_IPC_EVENT_SUPPORTED, 0)) return "IPC";
  return NULL;
}

static void print_device(int device) {
  static const struct {
    int number;
    const char* name;
  } facts[] = {
      {ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "pools"},
      {ATTRIBUTE_MANAGED_MEMORY, "managed memory"},
      {ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, "concurrent managed access"},
      {ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, "pageable memory access"},
      {ATTRIBUTE_PAGEABLE_HOST_TABLES, "host page tables"},
      {ATTRIBUTE_DIRECT_MANAGED_ACCESS, "direct access from the host to managed memory"},
      {ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing"},
      {ATTRIBUTE_HOST_REGISTER_SUPPORTED, "host register"},
      {ATTRIBUTE_HOST_REGISTERED_POINTER, "host pointer of registered memory"},
      {ATTRIBUTE_IPC_EVENT_SUPPORTED, "IPC events"},
      {ATTRIBUTE_HOST_POOLS_SUPPORTED, "host pools"},
  };
  char name[200] = "", text[600] = "";
  size_t total = 0;
  OK(cuDeviceGetName(name, sizeof name, device));
  OK(cuDeviceTotalMem_v2(&total, device));
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), ", %s %d", facts[i].name,
             attribute(facts[i].number, device));
  send_line("note device %d: %s, capability %d.%d, %zu MiB%s", device, name,
            attribute(ATTRIBUTE_CAPABILITY_MAJOR, device), attribute(ATTRIBUTE_CAPABILITY_MINOR, device), total >> 20,
            text);
}

/* ---- running ---- */

static void begin(int out) {
  output = out;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  /* Streams that share a channel of the hardware would wait for each other, and for the gate. */
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  /* No rule needs more devices than two, and to initialise many takes time in each process. */
  setenv("CUDA_VISIBLE_DEVICES", "0,1", 0);
  load_driver();
}

_Noreturn void run_probe(int out) {
  int version = 0;
  begin(out);
  OK(cuDriverGetVersion(&version));
  send_line("note driver: CUDA %d.%d (%d)", version / 1000, version % 1000 / 10, version);
  OK(cuInit(0));
  int count = devices();
  for (int i = 0; i < count; i++) print_device(i);
  if (count > 1) send_line("note peer access between devices 0 and 1: %s", peers() ? "yes" : "no");
  if (count == 0) stop("the driver has no device");
  send_line("done");
  for (;;) pause();
}

static void leave_clean(void) {
  CUcontext context;
  int mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  use(0);
  OK(cuCtxSynchronize());
  end_rule();
  while (cuCtxPopCurrent_v2(&context) == CUDA_SUCCESS) {
  }
  OK(cuThreadExchangeStreamCaptureMode(&mode));
}

/* The simulator's handlers of the exit write its report; a driver's could wait for ever, and so could those of a rule
 * that has failed. */
_Noreturn static void end(void) {
  if (is_simulated() && differences[0] == '\0') exit(0);
  _exit(0);
}

static void add_options(const char* options) {
  char all[1000];
  const char* given = getenv("CUDASIM");
  snprintf(all, sizeof all, "%s%s%s", given ? given : "", given && *given && *options ? "," : "", options);
  setenv("CUDASIM", all, 1);
}

static bool can_race(const struct rule* rule) {
#ifdef __SANITIZE_THREAD__
  return rule->races;
#else
  return rule == NULL;
#endif
}

static void check(const struct rule* rule) {
  const bool shared = !rule->alone && !rule->bare && rule->options == NULL;
  const int before = shared ? objects_left() : 0;
  if (!rule->bare) begin_rule();
  rule->check();
  open_gate();
  if (shared) leave_clean();
  check_violations(rule->violates);
  if (shared && objects_left() != before) differs("%d objects are left", objects_left() - before);
}

/* A rule whose process is not as it was before is the last of it: the parent starts another process. */
_Noreturn void run_child(struct batch batch, int out) {
  if (batch.count == 1 && batch.rules[0]->options != NULL) add_options(batch.rules[0]->options);
  begin(out);
  for (int i = 0; i < batch.count; i++) {
    current = batch.rules[i];
    send_line("run %s", current->name);
    if (can_race(current)) skip("its copies race");
    if (current->driver != NULL && !is_simulated()) {
      send_line("skip %s: stricter than drivers, which %s", current->name, current->driver);
      continue;
    }
    if (!current->bare) {
      OK(cuInit(0));
      const char* what = lacking(current->needs);
      if (what != NULL) {
        send_line("skip %s: needs %s", current->name, what);
        continue;
      }
      use(0);
      make_stage();
    }
    check(current);
    if (differences[0] != '\0') {
      send_failure();
      end();
    }
    send_line("ok %s", current->name);
  }
  end();
}

const struct rule* current_rule(void) { return current; }

/* The differences go to the process that started this one, which has the rule's result. */
_Noreturn void run_peer(const struct rule* rule, const struct peer* other) {
  is_peer = true;
  current = rule;
  parent = *other;
  begin(other->differences);
  use(0);
  make_stage();
  rule->peer();
  open_gate();
  check_violations(rule->peer_violates);
  if (differences[0] != '\0') send_failure();
  end();
}
