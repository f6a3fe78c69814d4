/* The objects of a rule: those it begins with, those it makes, and their end. */
#include "rules.h"

CUstream a, b, c, x, y;
CUevent e, f;
CUdeviceptr m, n, o;
unsigned char *p, *q;

struct made {
  enum object what;
  uintptr_t handle;
  CUcontext context;
};

static struct made* list;
static size_t count, room;
static bool begun; /* otherwise the calls of a rule are its own alone, and its process ends with it */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void made(enum object what, const void* handle) {
  CUcontext context = NULL;
  if (!begun) return;
  OK(cuCtxGetCurrent(&context));
  pthread_mutex_lock(&lock);
  if (count == room) list = realloc(list, (room = 2 * room + 64) * sizeof *list);
  list[count++] = (struct made){what, (uintptr_t)handle, context};
  pthread_mutex_unlock(&lock);
}

CUresult ended(enum object what, const void* handle, CUresult result) {
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&lock);
  for (size_t i = count; i-- > 0;)
    if (list[i].what == what && list[i].handle == (uintptr_t)handle) {
      memmove(list + i, list + i + 1, (--count - i) * sizeof *list);
      break;
    }
  pthread_mutex_unlock(&lock);
  return result;
}

void begin_rule(void) {
  begun = true;
  a = new_stream(), b = new_stream(), c = new_stream();
  x = new_blocking_stream(), y = new_blocking_stream();
  e = new_event(), f = new_event();
  m = new_memory(N), n = new_memory(N), o = new_memory(N);
  p = new_pinned(N), q = new_pinned(N);
  memset(p, 1, N);
  memset(q, 1, N);
}

static void destroy(struct made object) {
  OK(cuCtxSetCurrent(object.context));
  switch (object.what) {
    case STREAM: OK(cuStreamDestroy_v2((CUstream)object.handle)); break;
    case EVENT: OK(cuEventDestroy_v2((CUevent)object.handle)); break;
    case MEMORY: OK(cuMemFree_v2(object.handle)); break;
    case PAGE_LOCKED: OK(cuMemFreeHost((void*)object.handle)); break;
    case GRAPH: OK(cuGraphDestroy((CUgraph)object.handle)); break;
    case EXECUTABLE: OK(cuGraphExecDestroy((CUgraphExec)object.handle)); break;
    case POOL: OK(cuMemPoolDestroy((CUmemoryPool)object.handle)); break;
  }
}

void end_rule(void) {
  for (size_t i = 0; i < count; i++) {
    OK(cuCtxSetCurrent(list[i].context));
    if (i == 0 || list[i].context != list[i - 1].context) OK(cuCtxSynchronize());
  }
  while (count > 0) destroy(list[count - 1]);
}

void forget_objects(void) { count = 0; }
