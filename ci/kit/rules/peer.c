/* The other process of a rule: this program, started anew. */
#include "rules.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct peer parent;

/* An emulator of another processor that runs this program (internal/testing/emulated) is the command for the new one.
 */
static void start_program(char* const arguments[]) {
  char path[4096] = "";
  char* command[10] = {getenv("CDEVICE_TEST_EMULATOR"), path};
  if (!command[0] || !*command[0]) execv("/proc/self/exe", arguments);
  if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) return;
  for (int i = 1; arguments[i]; i++) command[i + 1] = arguments[i];
  execvp(command[0], command);
}

static void make_pipe(int ends[2]) {
  if (pipe(ends)) stop("no pipe can be made");
}

/* The child does nothing but start the program: a driver does not work there. */
void start_peer(struct peer* peer) {
  int to[2], from[2], differences[2];
  char numbers[3][16];
  make_pipe(to);
  make_pipe(from);
  make_pipe(differences);
  snprintf(numbers[0], sizeof numbers[0], "%d", to[0]);
  snprintf(numbers[1], sizeof numbers[1], "%d", from[1]);
  snprintf(numbers[2], sizeof numbers[2], "%d", differences[1]);
  peer->id = fork();
  if (peer->id < 0) stop("no process can be made");
  if (peer->id == 0) {
    close(to[1]);
    close(from[0]);
    close(differences[0]);
    start_program((char*[]){"rules", "--peer", (char*)current_rule()->name, numbers[0], numbers[1], numbers[2], NULL});
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  close(differences[1]);
  peer->in = from[0];
  peer->out = to[1];
  peer->differences = differences[0];
}

/* The other process has ended, or will. */
static void take_differences(const struct peer* peer) {
  char text[1500];
  size_t length = 0;
  for (ssize_t n; length < sizeof text - 1; length += (size_t)n)
    if ((n = read(peer->differences, text + length, sizeof text - 1 - length)) <= 0) break;
  text[length] = '\0';
  if (length > 0) differs("in the other process: %s", text);
}

static int reap(const struct peer* peer) {
  int status = -1;
  waitpid(peer->id, &status, 0);
  close(peer->in);
  close(peer->out);
  close(peer->differences);
  return status;
}

void end_peer(struct peer* peer) {
  take_differences(peer);
  int status = reap(peer);
  if (status != 0) differs("the other process ended with status %#x", (unsigned)status);
}

void kill_peer(struct peer* peer) {
  kill(peer->id, SIGKILL);
  reap(peer);
}

void say(const struct peer* to, const void* bytes, size_t size) {
  signal(SIGPIPE, SIG_IGN);
  if (write(to->out, bytes, size) != (ssize_t)size) differs("the other process does not listen");
}

void hear(const struct peer* from, void* bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t n = read(from->in, (char*)bytes + done, size - done);
    if (n <= 0) {
      if (from != &parent) take_differences(from);
      stop("the other process says nothing more");
    }
    done += (size_t)n;
  }
}

void say_word(const struct peer* to) { say(to, "w", 1); }

void hear_word(const struct peer* from) {
  char word;
  hear(from, &word, 1);
}
