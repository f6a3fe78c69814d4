/* A program that ends by a signal prints nothing: tests compare all that is printed to standard error. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  int ends[2], status;
  char text;
  if (pipe(ends)) return 2;
  if (fork() == 0) {
    dup2(ends[1], STDERR_FILENO);
    abort();
  }
  close(ends[1]);
  return wait(&status) < 0 || read(ends[0], &text, 1) != 0;
}
