#ifndef _WIN32
#include "fork.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct cpeer_forked use(struct ArrowDeviceArray* array, struct ArrowDeviceArrayStream* stream,
                               struct ArrowArrayStream* plain, struct ArrowAsyncProducer* producer,
                               struct ArrowAsyncTask* task) {
  struct cpeer_forked found = {0};
  struct ArrowSchema schema;
  struct ArrowDeviceArray device;
  memset(&schema, 0xdd, sizeof schema);
  memset(&device, 0xdd, sizeof device);
  array->array.release(&array->array);
  found.array_released = array->array.release == NULL;
  found.get_schema = stream->get_schema(stream, &schema);
  found.get_next = stream->get_next(stream, &device);
  found.plain_get_next = plain->get_next(plain, &device.array);
  const char* text = stream->get_last_error(stream);
  const char* plain_text = plain->get_last_error(plain);
  found.text = text != NULL && strstr(text, "fork") != NULL && plain_text != NULL && strstr(plain_text, "fork") != NULL;
  stream->release(stream);
  plain->release(plain);
  found.streams_released = stream->release == NULL && plain->release == NULL;
  producer->request(producer, 1);
  producer->cancel(producer);
  found.extract_data = task->extract_data(task, &device);
  found.nothing_filled = schema.release == NULL && device.array.release == NULL && device.sync_event == NULL;
  return found;
}

static int wait_for_child(pid_t child, int seconds) {
  const struct timespec nap = {0, 1000000};
  for (int i = 0; i < seconds * 1000; i++) {
    int status;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : EPROTO;
    nanosleep(&nap, NULL);
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  return ETIMEDOUT;
}

int cpeer_use_in_fork(struct ArrowDeviceArray* array, struct ArrowDeviceArrayStream* stream,
                      struct ArrowArrayStream* plain, struct ArrowAsyncProducer* producer, struct ArrowAsyncTask* task,
                      int seconds, struct cpeer_forked* found) {
  int ends[2];
  if (pipe(ends) != 0) return errno;
  pid_t child = fork();
  if (child == 0) {
    struct cpeer_forked answer = use(array, stream, plain, producer, task);
    _exit(write(ends[1], &answer, sizeof answer) != (ssize_t)sizeof answer);
  }
  close(ends[1]);
  int err = child < 0 ? EAGAIN : wait_for_child(child, seconds);
  if (err == 0 && read(ends[0], found, sizeof *found) != (ssize_t)sizeof *found) err = EPROTO;
  close(ends[0]);
  return err;
}

int cpeer_delete_in_fork(DLManagedTensorVersioned* tensor, int seconds) {
  pid_t child = fork();
  if (child < 0) return errno;
  if (child == 0) {
    tensor->deleter(tensor);
    _exit(0);
  }
  return wait_for_child(child, seconds);
}
#endif
