/* Device memory that several processes use. An allocation that is exported moves into a
 * shared file, at its old address; another process maps that file. Behind the memory the
 * file has a page with a list of the processes that have it open.
 *
 * The manual says: a handle refers to a whole allocation of cuMemAlloc; it is not opened in
 * the process that made it; from one device of a process handles are opened in one context
 * per device; another opening in that context counts, and each is closed; and to free
 * memory that another process still has open is undefined: here, a violation.
 *
 * The bytes of shared memory are ordered by events of both processes (ipcevent.c), or by the call that the
 * owner waits in and the message that it sends afterwards. */
#include "sim.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { USERS = 256 };

struct users {
  _Atomic uint64_t process[USERS];
};

struct ipc {
  struct share share;
  struct users *users;
  int opened;   /* imported: how often; 0: it is this process's */
  int released; /* of those, by libraries that close it later */
  int sign;
};

static size_t whole_pages(size_t size) { return (size + sim.page - 1) / sim.page * sim.page; }

static char *shadow_of(const struct block *b) { return (char *)(b->address + (uintptr_t)b->shadow); }

bool ipc_imported(const struct block *b) { return b && b->ipc && b->ipc->opened; }
bool ipc_capable(const struct block *b) { return b->memory == DEVICE_MEMORY && !b->pool && !ipc_imported(b); }

bool ipc_release(const struct block *b) { return !ipc_imported(b) || ++b->ipc->released == b->ipc->opened; }

/* Memory is not moved while an operation is at it, without the lock. */
void ipc_touch(const struct op *op) {
  for (int i = 0; i < 2; i++)
    if (op->blocks[i]) op->blocks[i]->touched++;
}

void ipc_untouch(const struct op *op) {
  for (int i = 0; i < 2; i++)
    if (op->blocks[i] && !--op->blocks[i]->touched) pthread_cond_broadcast(&sim.untouched);
}

static bool map_users(struct ipc *ipc) {
  void *p = mmap(NULL, sizeof(struct users), PROT_READ | PROT_WRITE, MAP_SHARED, ipc->share.fd,
                 (off_t)whole_pages(ipc->share.bytes));
  ipc->users = p == MAP_FAILED ? NULL : p;
  return ipc->users;
}

static bool map_memory(const struct block *b) {
  return mmap(shadow_of(b), whole_pages(b->size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, b->ipc->share.fd,
              0) != MAP_FAILED;
}

static void ipc_free(struct ipc *ipc) {
  if (ipc->users) munmap(ipc->users, sizeof *ipc->users);
  share_close(&ipc->share);
  free(ipc);
}

static bool fill(const struct block *b, int fd) {
  const size_t size = whole_pages(b->size);
  for (size_t done = 0; done < size;) {
    ssize_t n = pwrite(fd, shadow_of(b) + done, size - done, (off_t)done);
    if (n <= 0) return false;
    done += (size_t)n;
  }
  return true;
}

static CUresult export(struct block *b) {
  struct ipc *ipc = fresh(sizeof *ipc);
  const size_t size = whole_pages(b->size) + whole_pages(sizeof(struct users));
  if (!share_make(&ipc->share, SHARED_MEMORY, size)) {
    free(ipc);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  ipc->share.device = b->device;
  ipc->share.bytes = b->size;
  b->ipc = ipc;
  if (map_users(ipc) && fill(b, ipc->share.fd) && map_memory(b)) return CUDA_SUCCESS;
  b->ipc = NULL;
  ipc_free(ipc);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult ipc_get_memory(CUipcMemHandle *handle, CUdeviceptr address) {
  struct block *b = block_at(address);
  if (!handle || !b || !ipc_capable(b)) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = CUDA_SUCCESS;
  b->refs++;
  while (!b->ipc && b->touched) pthread_cond_wait(&sim.untouched, &sim.lock);
  if (block_at(b->address) != b) /* freed meanwhile */
    r = CUDA_ERROR_INVALID_VALUE;
  else if (!b->ipc)
    r = export(b);
  if (!r) share_write(&b->ipc->share, handle);
  block_unref(b);
  return r;
}

static bool sign(struct ipc *ipc) {
  for (ipc->sign = 0; ipc->sign < USERS; ipc->sign++) {
    uint64_t none = 0;
    if (atomic_compare_exchange_strong(&ipc->users->process[ipc->sign], &none, process_self())) return true;
  }
  return false;
}

/* The memory of a block that is opened, instead of fresh memory. */
CUresult ipc_map(struct block *b) {
  struct ipc *ipc = b->ipc;
  CUresult r = share_open(&ipc->share);
  if (r) return r;
  if (!map_users(ipc) || !map_memory(b)) return CUDA_ERROR_MAP_FAILED;
  share_close(&ipc->share); /* mappings stay */
  return sign(ipc) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Before the address space, if it was given any, is used again. */
void ipc_unmap(struct block *b) {
  struct ipc *ipc = b->ipc;
  if (ipc->opened && ipc->users && ipc->sign < USERS) atomic_store(&ipc->users->process[ipc->sign], 0);
  if (b->arena && mmap(shadow_of(b), whole_pages(b->size), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    abort(); /* it would be shared with the next allocation */
  b->ipc = NULL;
  ipc_free(ipc);
}

void ipc_freed(const struct block *b) {
  if (b->ipc->opened) return;
  for (int i = 0; i < USERS; i++) {
    const uint64_t user = atomic_load(&b->ipc->users->process[i]);
    if (user && process_lives(user))
      violation("memory at 0x%zx, from %s, was freed while process %d has it open", (size_t)b->address, b->call,
                (int)process_number(user));
  }
}

/* Reading: the answers to openings that the manual excludes. */
static CUresult find_open(const struct share *share, const struct context *c, struct block **out) {
  *out = NULL;
  for (size_t i = 0; i < sim.block_count; i++) {
    struct block *b = sim.blocks[i];
    if (!ipc_imported(b)) continue;
    if (b->context == c) {
      if (share_same(&b->ipc->share, share)) *out = b;
    } else if (b->context->device == c->device && b->ipc->share.process == share->process &&
               b->ipc->share.device == share->device) {
      return CUDA_ERROR_ALREADY_MAPPED;
    }
  }
  return CUDA_SUCCESS;
}

/* Access from another device is enabled as by cuCtxEnablePeerAccess. */
static CUresult reach(struct context *c, int device) {
  if (device == c->device) return CUDA_SUCCESS;
  if (!sim.options.peer) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  c->peers |= 1u << device;
  return CUDA_SUCCESS;
}

static CUresult open_new(CUdeviceptr *address, const struct share *share, struct context *c) {
  /* A device that this process does not see counts as the current one. */
  const int device = device_valid(share->device) ? share->device : c->device;
  CUresult r = reach(c, device);
  if (r) return r;
  struct block *b = block_new(DEVICE_MEMORY, c, device, share->bytes);
  b->ipc = fresh(sizeof *b->ipc);
  b->ipc->share = *share;
  b->ipc->opened = 1;
  b->ipc->sign = USERS;
  r = block_make(b);
  if (!r) *address = b->address;
  return r;
}

static CUresult open_memory(CUdeviceptr *address, const CUipcMemHandle *handle, unsigned flags, bool counted) {
  struct context *c;
  struct share share;
  struct block *b;
  CUresult r = current_context(&c);
  if (r) return r;
  if (!address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  r = share_read(&share, SHARED_MEMORY, handle);
  if (!r) r = find_open(&share, c, &b);
  if (r) return r;
  if (!b) return open_new(address, &share, c);
  if (!counted) return CUDA_ERROR_ALREADY_MAPPED;
  if (b->ipc->opened++ == b->ipc->released) access_hand_out(b, b->address, b->size);
  *address = b->address;
  return CUDA_SUCCESS;
}

/* Reading: before 11.0, when openings were not counted yet, there could be one. */
CUresult ipc_open_memory(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
  return open_memory(address, &handle, flags, false);
}

CUresult ipc_open_memory_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
  return open_memory(address, &handle, flags, true);
}

/* Does not wait: it is not documented to, so work that is queued is the caller's error. */
CUresult ipc_close_memory(CUdeviceptr address) {
  struct context *c;
  CUresult r = current_context(&c);
  if (r) return r;
  struct block *b = block_at(address);
  if (!ipc_imported(b) || b->address != address) return CUDA_ERROR_INVALID_VALUE;
  if (b->ipc->opened > 1) {
    b->ipc->opened--;
    if (b->ipc->released) b->ipc->released--;
    return CUDA_SUCCESS;
  }
  block_remove(b);
  block_kill(b);
  return CUDA_SUCCESS;
}
