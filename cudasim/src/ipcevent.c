/* Events that several processes record and wait for. The processes share a page, which
 * numbers the records of the event and lists the pending ones with the process of each. A
 * process waits for its own records as for those of any event, and for others' records here.
 *
 * The manual says: an opened event is recorded, queried and waited for as any other, and
 * once the process that made the event has destroyed it, its use is undefined: here, a
 * violation. What happens if a process ends before its record is done, the manual does not
 * say: here the record counts as done, so that nothing hangs, and it is a violation.
 *
 * No lock is shared: the words of the page are sequentially consistent. A process that reads that a record is
 * done sees what the work before it has written to shared memory, and one that reads the number of the latest
 * record sees the record. A bell that rings before a process sleeps has changed since the process looked at the
 * record, so that the system does not let it sleep. */
#include "sim.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RECORDS = 1024 };
static const long TICK = 20000000; /* nanoseconds between two checks that the recording process still runs */

struct record {
  _Atomic uint64_t number, process; /* 0: done */
};

struct page {
  _Atomic uint32_t bell; /* changes whenever a record is done */
  _Atomic uint32_t destroyed;
  _Atomic uint64_t next, latest;
  struct record records[RECORDS];
};

struct ipc_event {
  struct share share;
  struct page *page;
  uint64_t own; /* the latest record of this process */
  bool opened;
};

static struct record *record_at(const struct ipc_event *i, uint64_t number) {
  return &i->page->records[number % RECORDS];
}

static bool map_page(struct ipc_event *i) {
  void *p = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, i->share.fd, 0);
  i->page = p == MAP_FAILED ? NULL : p;
  return i->page;
}

static CUresult ipc_event_make(struct ipc_event *i) {
  if (!share_make(&i->share, SHARED_EVENT, sizeof(struct page))) return CUDA_ERROR_OPERATING_SYSTEM;
  return map_page(i) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult ipc_event_open(struct ipc_event *i) {
  CUresult r = share_open(&i->share);
  if (r) return r;
  i->opened = true;
  if (!map_page(i)) return CUDA_ERROR_MAP_FAILED;
  share_close(&i->share);
  return CUDA_SUCCESS;
}

CUresult ipc_event_new(struct event *e) {
  e->ipc = fresh(sizeof *e->ipc);
  e->ipc->share.fd = -1;
  return ipc_event_make(e->ipc);
}

void ipc_event_free(struct event *e) {
  struct ipc_event *i = e->ipc;
  if (!i) return;
  if (i->page) {
    if (!i->opened) atomic_store(&i->page->destroyed, 1);
    munmap(i->page, sizeof *i->page);
  }
  share_close(&i->share);
  free(i);
}

static void used(const struct event *e) {
  if (e->ipc->opened && atomic_load(&e->ipc->page->destroyed))
    violation("%s uses an event that was destroyed by the process that made it", self()->call);
}

static void ring(struct page *page) {
  atomic_fetch_add(&page->bell, 1);
  syscall(SYS_futex, &page->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Does not check that the recording process still runs. */
static bool is_pending(const struct ipc_event *i, uint64_t number) {
  const struct record *r = record_at(i, number);
  return atomic_load(&r->number) == number && atomic_load(&r->process);
}

/* Marks the record of a process that has ended as done. */
static bool bury(struct ipc_event *i, struct record *r) {
  uint64_t process = atomic_load(&r->process);
  if (!process || process_lives(process)) return false;
  if (!atomic_compare_exchange_strong(&r->process, &process, 0)) return false;
  violation("process %d ended before its record of an event was done", (int)process_number(process));
  ring(i->page);
  return true;
}

static bool pending(struct ipc_event *i, uint64_t number) {
  return is_pending(i, number) && !bury(i, record_at(i, number));
}

/* Before the record is queued: from then on all processes wait for it. */
CUresult ipc_event_record(struct event *e, uint64_t *number) {
  *number = 0;
  if (!e->ipc) return CUDA_SUCCESS;
  used(e);
  struct page *page = e->ipc->page;
  const uint64_t n = atomic_fetch_add(&page->next, 1) + 1;
  struct record *r = record_at(e->ipc, n);
  if (atomic_load(&r->process) && !bury(e->ipc, r)) return CUDA_ERROR_OUT_OF_MEMORY; /* as many records are pending */
  atomic_store(&r->number, n);
  atomic_store(&r->process, process_self());
  for (uint64_t latest = atomic_load(&page->latest); latest < n;)
    if (atomic_compare_exchange_strong(&page->latest, &latest, n)) break;
  *number = e->ipc->own = n;
  return CUDA_SUCCESS;
}

void ipc_event_done(const struct event *e, uint64_t number) {
  if (!number) return;
  atomic_store(&record_at(e->ipc, number)->process, 0);
  ring(e->ipc->page);
}

/* The latest record, if another process made it; otherwise 0. */
uint64_t ipc_event_latest(const struct event *e) {
  if (!e->ipc) return 0;
  used(e);
  const uint64_t latest = atomic_load(&e->ipc->page->latest);
  return latest == e->ipc->own ? 0 : latest;
}

bool ipc_event_pending(const struct event *e, uint64_t number) { return pending(e->ipc, number); }

/* Releases the lock meanwhile. */
void ipc_event_wait(struct event *e, uint64_t number) {
  struct page *page = e->ipc->page;
  e->object.refs++;
  for (;;) {
    const uint32_t bell = atomic_load(&page->bell);
    if (sim.ended || !pending(e->ipc, number)) break;
    sim_unlock();
    syscall(SYS_futex, &page->bell, FUTEX_WAIT, bell, &(struct timespec){0, TICK}, NULL, 0);
    sim_lock();
  }
  object_unref(&e->object);
}

/* A stream waits as its operation would run. */
void ipc_event_await(const struct op *op) {
  if (op->remote) ipc_event_wait(op->remote, op->number);
}

CUresult ipc_event_queue_wait(struct stream *s, struct event *e, uint64_t number) {
  if (!pending(e->ipc, number)) return CUDA_SUCCESS;
  struct op *op = op_new(OP_WAIT);
  op->remote = e;
  op->number = number;
  e->object.refs++;
  return op_push(s, op);
}

/* Reading: an event that was opened is not handed on. */
CUresult ipc_get_event(CUipcEventHandle *handle, CUevent event) {
  const struct event *e = object_find(event, EVENT);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (!e || !e->ipc || e->ipc->opened) return CUDA_ERROR_INVALID_HANDLE;
  share_write(&e->ipc->share, handle);
  return CUDA_SUCCESS;
}

CUresult ipc_open_event(CUevent *event, CUipcEventHandle handle) {
  struct context *c;
  struct share share;
  struct event *e;
  if (!event) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = current_context(&c);
  if (!r) r = share_read(&share, SHARED_EVENT, &handle);
  if (!r) r = event_new(c, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, &e);
  if (r) return r;
  e->ipc = fresh(sizeof *e->ipc);
  e->ipc->share = share;
  r = ipc_event_open(e->ipc);
  if (r)
    object_unref(&e->object);
  else
    *event = (CUevent)e->object.handle;
  return r;
}
