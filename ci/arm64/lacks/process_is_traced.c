/* One process traces another: the sanitizer of leaks does that to stop all threads. */
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  int status = 1;
  if (fork() == 0) _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0);
  return wait(&status) < 0 || status;
}
