/* rules --list
 * rules all | GROUP... | NAME... [then ...]
 *
 * Runs the rules on the driver that CDEVICE_CUDA_DRIVER names (libcuda.so.1). Each prints a line: ok NAME, FAIL NAME:
 * the rule and what the driver does, or skip NAME: what it lacks. This process never calls the driver: rules run in
 * children, many in one where they are harmless, and what a rule ends, hangs or spoils is its own process. Of the
 * latter, RULE_PROCESSES run at once (1). A rule with which the simulator is stricter than drivers on purpose is
 * skipped on a driver. Those after the word "then" run once those before it have. A name of no rule is a FAIL too. */
#include "rules.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1000, MOST_PROCESSES = 16 };

static const struct rule* rules[MOST];
static int count, processes = 1;
static double deadline, rule_seconds = 20;
static struct {
  int ok, failed, skipped;
} results;

void add_rule(const struct rule* rule) {
  if (count == MOST) abort();
  rules[count++] = rule;
}

static int by_group(const void* a, const void* b) {
  const struct rule *x = *(const struct rule* const*)a, *y = *(const struct rule* const*)b;
  int order = strcmp(x->group, y->group);
  return order ? order : strcmp(x->name, y->name);
}

static void print(const char* line) {
  results.ok += strncmp(line, "ok ", 3) == 0;
  results.failed += strncmp(line, "FAIL ", 5) == 0;
  results.skipped += strncmp(line, "skip ", 5) == 0;
  puts(line);
  fflush(stdout);
}

/* ---- a child ---- */

struct child {
  pid_t id;
  int in;
  char text[8192];
  size_t length;
};

static struct child start_child(void (*run)(void* data, int out), void* data) {
  struct child child = {.id = -1};
  int ends[2];
  fflush(stdout);
  if (pipe(ends)) {
    perror("pipe");
    exit(1);
  }
  child.id = fork();
  if (child.id == 0) {
    setpgid(0, 0);
    close(ends[0]);
    run(data, ends[1]);
  }
  if (child.id < 0) {
    perror("fork");
    exit(1);
  }
  close(ends[1]);
  child.in = ends[0];
  return child;
}

/* A line that has been read, without its end, or NULL. */
static char* take_line(struct child* child) {
  static char line[sizeof child->text];
  char* end = memchr(child->text, '\n', child->length);
  if (end == NULL) return NULL;
  size_t n = (size_t)(end - child->text);
  memcpy(line, child->text, n);
  line[n] = '\0';
  child->length -= n + 1;
  memmove(child->text, end + 1, child->length);
  return line;
}

/* Waits until there is something, and reports whether there will be more. */
static bool read_more(struct child* child) {
  ssize_t n = read(child->in, child->text + child->length, sizeof child->text - child->length);
  if (n > 0) child->length += (size_t)n;
  return n > 0;
}

/* The next line of the child; NULL: there is none, and *late says that there was no time. */
static char* next_line(struct child* child, double seconds, bool* late) {
  const double until = now() + seconds;
  *late = false;
  for (;;) {
    char* line = take_line(child);
    if (line != NULL) return line;
    struct pollfd fd = {.fd = child->in, .events = POLLIN};
    double left = until - now();
    *late = left <= 0 || poll(&fd, 1, (int)(left * 1000) + 1) == 0;
    if (*late || !read_more(child)) return NULL;
  }
}

/* Ends it if it has not ended. A process that the driver keeps is left behind. */
static int finish(struct child* child, bool end_it) {
  int status = 0;
  if (end_it) kill(-child->id, SIGKILL);
  for (int i = 0; i < 5000 && waitpid(child->id, &status, WNOHANG) == 0; i++) nap(1);
  kill(-child->id, SIGKILL); /* and processes that it started */
  close(child->in);
  return status;
}

/* How a process ended that said nothing, or did not end well after its last rule. */
static void describe_end(char* out, size_t size, const struct rule* rule, bool late, int status) {
  char how[100];
  if (late)
    snprintf(how, sizeof how, "it did not end in %g seconds", rule_seconds);
  else if (WIFSIGNALED(status))
    snprintf(how, sizeof how, "the process ended with signal %d", WTERMSIG(status));
  else
    snprintf(how, sizeof how, "the process ended with status %d", WEXITSTATUS(status));
  snprintf(out, size, "FAIL %s: %s: %s here: %s", rule->name, basis_words[rule->basis], rule->manual, how);
}

static void run_probe_in(void* unused, int out) {
  (void)unused;
  run_probe(out);
}
static void run_batch_in(void* batch, int out) { run_child(*(struct batch*)batch, out); }

/* Runs the first rules of a batch in one child, and returns how many of them have a result; the last one's is in out.
 */
static int run_some(struct batch batch, char* out, size_t size) {
  struct child child = start_child(run_batch_in, &batch);
  int done = 0;
  bool late = false, running = false;
  out[0] = '\0';
  for (char* line; (line = next_line(&child, rule_seconds, &late)) != NULL;) {
    if (strncmp(line, "run ", 4) == 0) {
      running = true;
    } else if (strncmp(line, "stop ", 5) == 0) {
      snprintf(out, size, "FAIL %s: %s", batch.rules[done]->name, line + 5);
    } else {
      if (out[0] != '\0') print(out);
      snprintf(out, size, "%s", line);
      running = false;
      done++;
    }
  }
  int status = finish(&child, late);
  if (running || done == 0) {
    if (done > 0) print(out);
    describe_end(out, size, batch.rules[done], late, status);
    done++;
  } else if (status != 0 && strncmp(out, "FAIL ", 5) != 0) {
    describe_end(out, size, batch.rules[done - 1], late, status); /* by what it did at its exit */
  }
  return done;
}

/* ---- all of them ---- */

static bool shared(const struct rule* rule) { return !rule->alone && !rule->bare && rule->options == NULL; }

/* Rules that share a process until one of them differs. That one is run again in a process of its own: the difference
 * may be that of a process in which much has happened. */
static void run_batch(struct batch batch) {
  static char line[8192], again[8192];
  while (batch.count > 0) {
    if (now() > deadline) {
      snprintf(line, sizeof line, "skip %s: no time was left", batch.rules[0]->name);
      print(line);
      batch.rules++, batch.count--;
      continue;
    }
    int n = run_some(batch, line, sizeof line);
    if (n > 1 && strncmp(line, "FAIL ", 5) == 0) {
      run_some((struct batch){batch.rules + n - 1, 1}, again, sizeof again);
      strncat(line,
              strncmp(again, "FAIL ", 5) == 0 ? " (also in a process of its own)" : " (not in a process of its own)",
              sizeof line - strlen(line) - 1);
    }
    print(line);
    batch.rules += n, batch.count -= n;
  }
}

/* Prints what there is. The process stays until the end: without one that has initialised the driver, a machine may
 * start its devices anew for each rule, which takes seconds. */
static bool run_facts(struct child* child) {
  bool late = false, well = false;
  *child = start_child(run_probe_in, NULL);
  for (char* line; !well && (line = next_line(child, rule_seconds, &late)) != NULL;) {
    if (strncmp(line, "note ", 5) == 0) puts(line + 5);
    if (strncmp(line, "stop ", 5) == 0) printf("FAIL driver: %s\n", line + 5);
    well = strcmp(line, "done") == 0;
  }
  if (late) printf("FAIL driver: it is not initialised in %g seconds\n", rule_seconds);
  fflush(stdout);
  return well;
}

/* Of rules that are alone, those that one of several processes runs. */
struct share {
  const struct rule* const* rules;
  int count, first;
};

static void run_share(void* data, int out) {
  const struct share* share = data;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(out, STDOUT_FILENO);
  close(out);
  for (int i = share->first; i < share->count; i += processes) run_batch((struct batch){share->rules + i, 1});
  _exit(0);
}

/* A driver takes most of their time to start and to end, and does so for several processes at once. Each line is
 * printed when it is there: who ends this program loses no result that it has. */
static void run_alone(const struct rule* const* rules, int n) {
  static struct child children[MOST_PROCESSES];
  struct pollfd fds[MOST_PROCESSES];
  int running = processes;
  for (int i = 0; i < processes; i++) {
    children[i] = start_child(run_share, &(struct share){rules, n, i});
    fds[i] = (struct pollfd){.fd = children[i].in, .events = POLLIN};
  }
  while (running > 0) {
    poll(fds, (nfds_t)processes, -1);
    for (int i = 0; i < processes; i++) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      if (!read_more(&children[i])) {
        fds[i].fd = -1; /* which poll passes over */
        running--;
        finish(&children[i], false);
      }
      for (char* line; (line = take_line(&children[i])) != NULL;) print(line);
    }
  }
}

/* Those that share a process come first. */
static void run_all(const struct rule** chosen, int n) {
  int i = 0;
  while (i < n && shared(chosen[i])) {
    int end = i;
    while (end < n && shared(chosen[end]) && strcmp(chosen[end]->group, chosen[i]->group) == 0) end++;
    run_batch((struct batch){chosen + i, end - i});
    i = end;
  }
  if (i < n) run_alone(chosen + i, n - i);
}

static void list(void) {
  static const char* const as[] = {"manual", "seen", "reading"};
  for (int i = 0; i < count; i++)
    printf("%s\t%s\t%s\t%s\t%s\n", rules[i]->group, rules[i]->name, as[rules[i]->basis], rules[i]->manual,
           rules[i]->driver != NULL ? rules[i]->driver : "");
}

static bool is_chosen(const struct rule* rule, char** names, int n) {
  for (int i = 0; i < n; i++)
    if (strcmp(names[i], "all") == 0 || strcmp(names[i], rule->group) == 0 || strcmp(names[i], rule->name) == 0)
      return true;
  return false;
}

/* Prints words that choose nothing, and returns how many there are: a run that passed over them would look as if it had
 * run all that it was told to. */
static int print_unknown(char** words, int n) {
  int unknown = 0;
  for (int i = 0; i < n; i++) {
    bool known = strcmp(words[i], "then") == 0;
    for (int j = 0; !known && j < count; j++) known = is_chosen(rules[j], words + i, 1);
    if (known) continue;
    printf("FAIL %s: there is no such rule\n", words[i]);
    unknown++;
  }
  fflush(stdout);
  return unknown;
}

/* Rules that no earlier call has chosen. Those that share a process first: they are most, and take the least time. */
static int choose(const struct rule** chosen, char** names, int n) {
  static bool taken[MOST];
  int found = 0;
  for (int alone = 0; alone < 2; alone++)
    for (int i = 0; i < count; i++)
      if (!taken[i] && shared(rules[i]) == !alone && is_chosen(rules[i], names, n)) {
        chosen[found++] = rules[i];
        taken[i] = true;
      }
  return found;
}

/* How many of the words come before "then". */
static int part(char** words, int n) {
  int i = 0;
  while (i < n && strcmp(words[i], "then") != 0) i++;
  return i;
}

static void be_peer(char** argv) {
  for (int i = 0; i < count; i++)
    if (strcmp(rules[i]->name, argv[2]) == 0)
      run_peer(rules[i], &(struct peer){.in = atoi(argv[3]), .out = atoi(argv[4]), .differences = atoi(argv[5])});
}

int main(int argc, char** argv) {
  static const struct rule* chosen[MOST];
  const char *seconds = getenv("KIT_SECONDS"), *each = getenv("RULE_SECONDS"), *at_once = getenv("RULE_PROCESSES");
  qsort(rules, (size_t)count, sizeof *rules, by_group);
  if (argc == 6 && strcmp(argv[1], "--peer") == 0) be_peer(argv);
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    list();
    return 0;
  }
  int n = 0, parts = 0, *ends = calloc((size_t)argc + 1, sizeof *ends);
  for (int i = 1, next; ends != NULL && i < argc; i = next + 1) {
    next = i + part(argv + i, argc - i);
    n += choose(chosen + n, argv + i, next - i);
    ends[++parts] = n;
  }
  int unknown = argc > 1 && argv[1][0] == '-' ? 0 : print_unknown(argv + 1, argc - 1);
  if (n + unknown == 0) {
    fprintf(stderr, "usage: rules --list | rules all | rules GROUP... | rules NAME... [then ...]\n");
    return 2;
  }
  if (each != NULL && atof(each) > 0) rule_seconds = atof(each);
  if (at_once != NULL && atoi(at_once) > 0) processes = atoi(at_once) < MOST_PROCESSES ? atoi(at_once) : MOST_PROCESSES;
  deadline = now() + (seconds != NULL && atof(seconds) > 60 ? atof(seconds) - 40 : 1e6);
  struct child keeper;
  bool well = run_facts(&keeper);
  for (int i = 0; well && i < parts; i++) run_all(chosen + ends[i], ends[i + 1] - ends[i]);
  free(ends);
  finish(&keeper, true);
  if (!well) return 1;
  printf("%d rules: %d as they should be, %d that differ, %d that need something else\n", n, results.ok, results.failed,
         results.skipped);
  return unknown > 0 || results.failed > 0 || results.ok + results.failed + results.skipped != n;
}
