/* The memory that the driver knows: device, managed, page-locked and registered. All
 * of it has addresses of its own (unified addressing), so one table holds it. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static const int POISON = 0xa5;
static const size_t FULL = (size_t)4 << 20, END = (size_t)64 << 10, LINE = 64;
enum { LINES = 8 };

struct block *block_new(enum memory memory, struct context *context, int device, size_t size) {
  static uint64_t ids;
  struct block *b = fresh(sizeof *b);
  b->memory = memory;
  b->refs = 1;
  b->size = size;
  b->id = ++ids;
  b->device = device;
  b->call = self()->call;
  b->context = context;
  b->context->object.refs++;
  return b;
}

bool block_on_device(const struct block *b) { return b && (b->memory == DEVICE_MEMORY || b->memory == MANAGED_MEMORY); }

void block_keep(struct block *b, bool kept) { ledger_keep(&b->entry, kept); }

/* A part of a block, and who has it. */
struct part {
  uintptr_t address;
  size_t size;
  struct caller *user;
  struct part *next;
};

/* Of a part in which the range lies, the beginning remains; or else the rest. */
static void cut(struct part *p, uintptr_t start, uintptr_t end) {
  const uintptr_t last = p->address + p->size;
  if (last <= start || end <= p->address) return;
  if (p->address >= start) p->address = end < last ? end : last;
  p->size = (p->address < start ? start : last) - p->address;
}

void block_take_back(struct block *b, uintptr_t address, size_t size) {
  for (struct part **at = &b->parts, *p; (p = *at);) {
    cut(p, address, address + size);
    if (p->size) {
      at = &p->next;
      continue;
    }
    *at = p->next;
    free(p);
  }
  ledger_block(b);
}

void block_hand_out(struct block *b, uintptr_t address, size_t size) {
  struct part *p = fresh(sizeof *p);
  *p = (struct part){address, size, caller_of_call(), b->parts};
  b->parts = p;
  ledger_block(b);
}

struct caller *block_user(const struct block *b) { return b->parts ? b->parts->user : NULL; }

static void free_parts(struct block *b) {
  for (struct part *p = b->parts, *next; p; p = next) {
    next = p->next;
    free(p);
  }
}

void block_unref(struct block *b) {
  if (--b->refs) return;
  object_unref(&b->context->object);
  if (b->pool) object_unref(&b->pool->object);
  ranges_free(&b->ranges);
  free_parts(b);
  if (b->ipc) ipc_unmap(b);
  if (b->arena)
    arena_give(b);
  else
    free(b);
}

void block_kill(struct block *b) {
  b->dead = true;
  block_unref(b);
}

static const size_t MOST_ADDRESSES = (size_t)1 << 46;

static bool account(const struct block *b) {
  if (ipc_imported(b)) return true; /* accounted to another process */
  struct device *d = &sim.devices[b->device];
  switch (b->memory) {
    case DEVICE_MEMORY:
      if (b->size > sim.options.memory - d->bytes || (b->pool && !pool_take(b->pool, b->size))) return false;
      d->bytes += b->size;
      if (d->peak < d->bytes) d->peak = d->bytes;
      return true;
    case MANAGED_MEMORY:
      /* There may be more of it than a device has, but not more than there are addresses. */
      if (b->size > MOST_ADDRESSES || (b->pool && !pool_take(b->pool, b->size))) return false;
      sim.managed_bytes += b->size;
      return true;
    default:
      if (b->size > sim.options.host_memory - sim.host_bytes - sim.registered_bytes ||
          (b->pool && !pool_take(b->pool, b->size)))
        return false;
      *(b->memory == HOST_MEMORY ? &sim.host_bytes : &sim.registered_bytes) += b->size;
      return true;
  }
}

static void forget(const struct block *b) {
  if (ipc_imported(b)) return;
  if (b->pool) pool_give(b->pool, b->size);
  switch (b->memory) {
    case DEVICE_MEMORY: sim.devices[b->device].bytes -= b->size; break;
    case MANAGED_MEMORY: sim.managed_bytes -= b->size; break;
    case HOST_MEMORY: sim.host_bytes -= b->size; break;
    case REGISTERED_MEMORY: sim.registered_bytes -= b->size; break;
  }
}

/* Of the first block that begins behind the address. */
static size_t index_after(uintptr_t address) {
  size_t low = 0, high = sim.block_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (sim.blocks[middle]->address <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void make_room(void) {
  if (sim.block_count < sim.block_room) return;
  sim.block_room = sim.block_room ? 2 * sim.block_room : 64;
  struct block **all = fresh(sim.block_room * sizeof *all);
  if (sim.block_count) memcpy(all, sim.blocks, sim.block_count * sizeof *all);
  free(sim.blocks);
  sim.blocks = all;
}

/* Fills with garbage; of a large block, both ends and a few lines between, so that unused memory
 * costs nothing. */
static void poison(char *memory, size_t size) {
  if (size <= FULL) {
    memset(memory, POISON, size);
    return;
  }
  memset(memory, POISON, END);
  memset(memory + size - END, POISON, END);
  for (size_t i = 1; i < LINES; i++) memset(memory + size / LINES * i / LINE * LINE, POISON, LINE);
}

/* Without the lock while the memory is filled with garbage. */
static CUresult back(struct block *b) {
  if (!arena_take(b)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (b->ipc) return ipc_map(b);
  if (sim.options.poison) {
    touch_begin();
    poison((char *)(b->address + (uintptr_t)b->shadow), b->size);
    touch_end();
  }
  return b->context->object.dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

/* May release the lock meanwhile. */
CUresult block_make(struct block *b) {
  CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
  if (account(b)) {
    r = b->address ? CUDA_SUCCESS : back(b);
    if (r) forget(b);
  }
  if (r) {
    block_unref(b);
    return r;
  }
  make_room();
  size_t i = index_after(b->address);
  memmove(sim.blocks + i + 1, sim.blocks + i, (sim.block_count++ - i) * sizeof *sim.blocks);
  sim.blocks[i] = b;
  block_hand_out(b, b->address, b->size);
  return CUDA_SUCCESS;
}

void block_remove(struct block *b) {
  keeper_forget(b->address);
  if (b->ipc) ipc_freed(b);
  ledger_remove(&b->entry);
  forget(b);
  size_t i = index_after(b->address);
  memmove(sim.blocks + i - 1, sim.blocks + i, (sim.block_count-- - i) * sizeof *sim.blocks);
}

struct block *block_at(uintptr_t address) {
  size_t i = index_after(address);
  if (!i) return NULL;
  struct block *b = sim.blocks[i - 1];
  return address - b->address < b->size ? b : NULL;
}

bool block_overlaps(uintptr_t address, size_t size) {
  size_t i = index_after(address);
  return block_at(address) || (i < sim.block_count && sim.blocks[i]->address - address < size);
}

/* Meanwhile, nothing is queued in the context of the memory. */
void block_await_devices(struct block *b) {
  struct context *c = b->context;
  struct points points = {0};
  points_add_device(&points, block_on_device(b) ? b->device : -1);
  sim.synchronisations++;
  c->object.refs++;
  c->freeing++;
  points_wait(&points);
  c->freeing--;
  pthread_cond_broadcast(&sim.ready);
  object_unref(&c->object);
  points_free(&points);
}

/* Memory of a pool is not waited for: the caller must have done that. */
CUresult block_retire(struct block *b) {
  if (b->context->fault) return b->context->fault;
  block_remove(b);
  if (b->pool)
    access_by_host(self()->call, b, b->address, b->size, true);
  else
    block_await_devices(b);
  block_kill(b);
  return CUDA_SUCCESS;
}
