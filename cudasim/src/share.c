/* Files that several processes map. They have no name (memfd): another process opens one by way of
 * /proc, while the process that made it keeps it open, so a killed process leaves nothing behind. A
 * handle, of 64 bytes, holds the process, the number of the file in it, and a random token that is
 * part of the file's description: a descriptor or process number that was used again is noticed. */
#include "sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static const char magic[8] = "cudasim";

/* The state of a process and when it was started, in ticks of the clock; 0: there is none. Asked of its first
 * thread: an emulator (qemu-user) answers for the process itself, with another start. */
static uint64_t started(pid_t pid, char *state) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (size <= 0) return 0;
  text[size] = '\0';
  const char *at = strrchr(text, ')'); /* the name before it may have anything in it */
  unsigned long long start = 0;
  const char *const fields = /* the third and the 22nd */
      " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu";
  return at && sscanf(at + 1, fields, state, &start) == 2 ? start : 0;
}

/* Number and start in one word: a number alone is used again. */
enum { PID_BITS = 22 };

uint64_t process_of(pid_t pid) {
  char state = 0;
  uint64_t start = started(pid, &state);
  return state && state != 'Z' && state != 'X' ? start << PID_BITS | (uint64_t)pid : 0;
}

pid_t process_number(uint64_t process) { return (pid_t)(process & ((1u << PID_BITS) - 1)); }

bool process_lives(uint64_t process) { return process_of(process_number(process)) == process; }

uint64_t process_self(void) {
  static uint64_t self; /* under the lock; a child that was forked has no driver */
  if (!self) self = process_of(getpid());
  return self;
}

static void name_of(const struct share *share, char *name, size_t size) {
  snprintf(name, size, "cudasim-%016llx%016llx", (unsigned long long)share->token[0],
           (unsigned long long)share->token[1]);
}

bool share_make(struct share *share, enum share_kind kind, size_t size) {
  char name[64];
  *share = (struct share){.kind = kind, .fd = -1, .process = process_self()};
  if (!share->process || getrandom(share->token, sizeof share->token, 0) != sizeof share->token) return false;
  name_of(share, name, sizeof name);
  share->fd = memfd_create(name, MFD_CLOEXEC);
  if (share->fd >= 0 && !ftruncate(share->fd, (off_t)size)) return true;
  share_close(share);
  return false;
}

/* Of the process that the handle names, unless that has ended or closed the file. */
CUresult share_open(struct share *share) {
  char path[64], name[64], want[96], found[96] = "";
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)process_number(share->process), share->theirs);
  name_of(share, name, sizeof name);
  snprintf(want, sizeof want, "/memfd:%s (deleted)", name);
  if (!process_lives(share->process) || readlink(path, found, sizeof found - 1) < 0 || strcmp(found, want))
    return CUDA_ERROR_MAP_FAILED;
  share->fd = open(path, O_RDWR | O_CLOEXEC);
  return share->fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED;
}

struct handle {
  char magic[8];
  int32_t kind, fd, device, zero;
  uint64_t process, bytes, token[2];
};

_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "ABI");

void share_write(const struct share *share, void *out) {
  struct handle h = {
      .kind = share->kind, .fd = share->fd, .device = share->device, .process = share->process, .bytes = share->bytes};
  memcpy(h.magic, magic, sizeof magic);
  memcpy(h.token, share->token, sizeof h.token);
  memset(out, 0, sizeof(CUipcMemHandle));
  memcpy(out, &h, sizeof h);
}

/* Does not open it yet. */
CUresult share_read(struct share *share, enum share_kind kind, const void *from) {
  struct handle h;
  memcpy(&h, from, sizeof h);
  if (memcmp(h.magic, magic, sizeof magic) || h.kind != (int32_t)kind) return CUDA_ERROR_INVALID_VALUE;
  *share = (struct share){
      .kind = kind, .fd = -1, .theirs = h.fd, .device = h.device, .process = h.process, .bytes = h.bytes};
  memcpy(share->token, h.token, sizeof h.token);
  return h.process == process_self() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

bool share_same(const struct share *a, const struct share *b) { return !memcmp(a->token, b->token, sizeof a->token); }

void share_close(struct share *share) {
  if (share->fd >= 0) close(share->fd);
  share->fd = -1;
}
