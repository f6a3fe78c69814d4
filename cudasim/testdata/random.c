/* Random programs, judged twice: by the simulator when they run, and by a model that knows nothing of time.
 * The model computes the clock of each call when it is made and compares each access with all
 * before it. A program ends at its first race; a careful one leaves out the calls that would be one. */
#include "simulator.h"

enum { SLOTS = 64, STREAMS = 6, EVENTS = 3, BYTES = 32, BLOCKS = 64, ACCESSES = 512, GRAPHS = 2, LANES = 2, NODES = 6 };
enum { LEGACY, PER_THREAD, FIRST_ORDINARY, FIRST_NON_BLOCKING = 4 };

struct clock {
  unsigned at[SLOTS];
};

struct model {
  struct clock host, retired, retired_blocking, event[EVENTS], launched[GRAPHS];
  struct {
    struct clock clock;
    int slot;
  } stream[STREAMS];
  int slots, blocks, count;
  struct {
    int block, start, end, slot;
    unsigned epoch;
    bool write;
  } access[ACCESSES];
  bool race;
};

/* Captured in two streams. */
struct graph {
  CUgraphExec exec;
  int slot[LANES], count;
  struct {
    int what, lane, e, start, size, from;
  } node[NODES];
};

struct machine {
  struct model model;
  struct graph graph[GRAPHS];
  uint64_t random;
  CUstream stream[STREAMS];
  CUevent event[EVENTS];
  CUdeviceptr device, pool[2];
  int pool_block[2]; /* 0: not allocated */
  unsigned char *pinned;
  char told[1 << 13]; /* the program so far */
};

enum { DEVICE_BLOCK = 1, PINNED_BLOCK = 2 };

static unsigned draw(struct machine *m, unsigned below) {
  m->random = m->random * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(m->random >> 33) % below;
}

static void learn(struct clock *c, const struct clock *other) {
  for (int i = 0; i < SLOTS; i++)
    if (c->at[i] < other->at[i]) c->at[i] = other->at[i];
}

static bool is_blocking(int s) { return s != LEGACY && s < FIRST_NON_BLOCKING; }

static void queue(struct model *m, int s) {
  struct clock *c = &m->stream[s].clock;
  learn(c, &m->host);
  for (int i = 0; i < STREAMS; i++)
    if ((s == LEGACY && is_blocking(i)) || (i == LEGACY && is_blocking(s))) learn(c, &m->stream[i].clock);
  if (s == LEGACY) learn(c, &m->retired_blocking);
  c->at[m->stream[s].slot]++;
  m->host.at[0]++;
}

static void touch(struct model *m, int block, int start, int size, bool write, const struct clock *c, int slot) {
  for (int i = 0; i < m->count; i++) {
    if (m->access[i].block != block || m->access[i].end <= start || m->access[i].start >= start + size) continue;
    if (!write && !m->access[i].write) continue;
    if (c->at[m->access[i].slot] < m->access[i].epoch) m->race = true;
  }
  CHECK(m->count < ACCESSES);
  m->access[m->count].block = block;
  m->access[m->count].start = start;
  m->access[m->count].end = start + size;
  m->access[m->count].slot = slot;
  m->access[m->count].epoch = c->at[slot];
  m->access[m->count++].write = write;
}

static void use_memory(struct model *m, int s, int block, int start, int size, bool write) {
  touch(m, block, start, size, write, &m->stream[s].clock, m->stream[s].slot);
}

static void wait_for_stream(struct model *m, int s) { learn(&m->host, &m->stream[s].clock); }

/* ---- the calls: the model first, and the driver only if `real` ---- */

struct act {
  int what, s, e, other;
  int start, size, from;
};

static CUdeviceptr memory_of(const struct machine *m, int which) { return which < 2 ? m->pool[which] : m->device; }

static void copy_and_set(struct machine *m, const struct act *a, bool real) {
  struct model *o = &m->model;
  const int which = a->other % 4;
  const int block = which < 2 && m->pool_block[which] ? m->pool_block[which] : DEVICE_BLOCK;
  const CUdeviceptr d = memory_of(m, block == DEVICE_BLOCK ? 2 : which) + (unsigned)a->start;
  const size_t size = (size_t)a->size;
  CUstream s = m->stream[a->s];
  const int legacy = a->what == 4 || a->what == 5 ? LEGACY : a->s;
  queue(o, legacy);
  switch (a->what) {
    case 0:
      use_memory(o, a->s, block, a->start, a->size, true);
      if (real) OK(cuMemsetD8Async(d, 1, size, s));
      return;
    case 1:
      use_memory(o, a->s, PINNED_BLOCK, a->from, a->size, false);
      use_memory(o, a->s, block, a->start, a->size, true);
      if (real) OK(cuMemcpyHtoDAsync_v2(d, m->pinned + a->from, size, s));
      return;
    case 2:
      use_memory(o, a->s, block, a->start, a->size, false);
      use_memory(o, a->s, PINNED_BLOCK, a->from, a->size, true);
      if (real) OK(cuMemcpyDtoHAsync_v2(m->pinned + a->from, d, size, s));
      return;
    case 3:
      use_memory(o, a->s, block, a->start, a->size, false);
      use_memory(o, a->s, DEVICE_BLOCK, BYTES + a->from, a->size, true);
      if (real) OK(cuMemcpyDtoDAsync_v2(m->device + BYTES + (unsigned)a->from, d, size, s));
      return;
    case 4:
      use_memory(o, LEGACY, block, a->start, a->size, false);
      use_memory(o, LEGACY, PINNED_BLOCK, a->from, a->size, true);
      wait_for_stream(o, LEGACY);
      if (real) OK(cuMemcpyDtoH_v2(m->pinned + a->from, d, size));
      return;
    default:
      use_memory(o, LEGACY, block, a->start, a->size, true);
      if (real) OK(cuMemsetD8_v2(d, 2, size));
  }
}

static void host_access(struct machine *m, const struct act *a, bool real) {
  const bool write = a->other % 2;
  touch(&m->model, PINNED_BLOCK, a->from, a->size, write, &m->model.host, 0);
  if (!real) return;
  if (write)
    cudasim_host_write(m->pinned + a->from, (size_t)a->size);
  else
    cudasim_host_read(m->pinned + a->from, (size_t)a->size);
}

static void pool(struct machine *m, const struct act *a, bool real) {
  const int i = a->other % 2;
  queue(&m->model, a->s);
  if (!m->pool_block[i]) {
    const int block = PINNED_BLOCK + ++m->model.blocks;
    use_memory(&m->model, a->s, block, 0, BYTES, true);
    m->pool_block[i] = block;
    if (real) OK(cuMemAllocAsync(&m->pool[i], BYTES, m->stream[a->s]));
  } else {
    use_memory(&m->model, a->s, m->pool_block[i], 0, BYTES, true);
    m->pool_block[i] = 0;
    if (real) OK(cuMemFreeAsync(m->pool[i], m->stream[a->s]));
  }
}

static void event(struct machine *m, const struct act *a, bool real) {
  struct model *o = &m->model;
  struct clock *e = &o->event[a->e];
  switch (a->what) {
    case 8:
      queue(o, a->s);
      *e = o->stream[a->s].clock;
      if (real) OK(cuEventRecord(m->event[a->e], m->stream[a->s]));
      return;
    case 9:
      queue(o, a->s);
      learn(&o->stream[a->s].clock, e);
      if (real) OK(cuStreamWaitEvent(m->stream[a->s], m->event[a->e], 0));
      return;
    case 10:
      learn(&o->host, e);
      if (real) OK(cuEventSynchronize(m->event[a->e]));
      return;
    default:
      if (real && cuEventQuery(m->event[a->e]) == CUDA_SUCCESS) learn(&o->host, e);
  }
}

static void stream(struct machine *m, const struct act *a, bool real) {
  struct model *o = &m->model;
  switch (a->what) {
    case 12:
      wait_for_stream(o, a->s);
      if (real) OK(cuStreamSynchronize(m->stream[a->s]));
      return;
    case 13:
      if (real && cuStreamQuery(m->stream[a->s]) == CUDA_SUCCESS) wait_for_stream(o, a->s);
      return;
    case 14:
      for (int i = 0; i < STREAMS; i++) wait_for_stream(o, i);
      learn(&o->host, &o->retired);
      if (real) OK(cuCtxSynchronize());
      return;
    default: /* a stream ends, and another takes its place */
      if (a->s < FIRST_ORDINARY || o->slots == SLOTS) return;
      learn(&o->retired, &o->stream[a->s].clock);
      if (is_blocking(a->s)) learn(&o->retired_blocking, &o->stream[a->s].clock);
      memset(&o->stream[a->s], 0, sizeof o->stream[a->s]);
      o->stream[a->s].slot = o->slots++;
      if (!real) return;
      OK(cuStreamDestroy_v2(m->stream[a->s]));
      m->stream[a->s] = is_blocking(a->s) ? new_blocking_stream() : new_stream();
  }
}

/* ---- graphs ---- */

enum { SET, COPY, READ, FORK, RECORD, WAIT, NODE_KINDS };

static void follow(CUstream later, CUstream earlier) {
  CUevent e = new_event();
  OK(cuEventRecord(e, earlier));
  OK(cuStreamWaitEvent(later, e, 0));
  OK(cuEventDestroy_v2(e));
}

static void draw_graph(struct machine *m, struct graph *g) {
  g->count = 1 + (int)draw(m, NODES);
  for (int l = 0; l < LANES; l++) g->slot[l] = m->model.slots++;
  for (int i = 0; i < g->count; i++) {
    g->node[i].what = (int)draw(m, NODE_KINDS);
    g->node[i].lane = (int)draw(m, LANES);
    g->node[i].e = (int)draw(m, EVENTS);
    g->node[i].size = 1 + (int)draw(m, 8);
    g->node[i].start = (int)draw(m, BYTES - 8);
    g->node[i].from = (int)draw(m, BYTES - 8);
  }
}

static void capture_node(const struct machine *m, const struct graph *g, int i, const CUstream *lanes) {
  const int lane = g->node[i].lane;
  const CUdeviceptr d = m->device + (unsigned)g->node[i].start;
  const size_t size = (size_t)g->node[i].size;
  CUstream s = lanes[lane];
  switch (g->node[i].what) {
    case SET: OK(cuMemsetD8Async(d, 3, size, s)); return;
    case COPY: OK(cuMemcpyDtoDAsync_v2(m->device + BYTES + (unsigned)g->node[i].from, d, size, s)); return;
    case READ: OK(cuMemcpyDtoHAsync_v2(m->pinned + g->node[i].from, d, size, s)); return;
    case FORK: follow(lanes[1 - lane], s); return;
    case RECORD: OK(cuEventRecordWithFlags(m->event[g->node[i].e], s, CU_EVENT_RECORD_EXTERNAL)); return;
    default: OK(cuStreamWaitEvent(s, m->event[g->node[i].e], CU_EVENT_WAIT_EXTERNAL));
  }
}

static void capture(const struct machine *m, struct graph *g) {
  CUgraph graph = NULL;
  CUstream lanes[LANES] = {new_stream(), new_stream()};
  OK(cuStreamBeginCapture_v2(lanes[0], CU_STREAM_CAPTURE_MODE_RELAXED));
  follow(lanes[1], lanes[0]);
  for (int i = 0; i < g->count; i++) capture_node(m, g, i, lanes);
  follow(lanes[0], lanes[1]);
  OK(cuStreamEndCapture(lanes[0], &graph));
  OK(cuGraphInstantiateWithFlags(&g->exec, graph, 0));
  OK(cuGraphDestroy(graph));
  for (int l = 0; l < LANES; l++) OK(cuStreamDestroy_v2(lanes[l]));
}

static void run_node(struct model *o, const struct graph *g, int i, struct clock *lanes) {
  const int lane = g->node[i].lane, slot = g->slot[lane], start = g->node[i].start, size = g->node[i].size;
  struct clock *c = &lanes[lane];
  c->at[slot]++;
  switch (g->node[i].what) {
    case SET: touch(o, DEVICE_BLOCK, start, size, true, c, slot); return;
    case COPY:
      touch(o, DEVICE_BLOCK, start, size, false, c, slot);
      touch(o, DEVICE_BLOCK, BYTES + g->node[i].from, size, true, c, slot);
      return;
    case READ:
      touch(o, DEVICE_BLOCK, start, size, false, c, slot);
      touch(o, PINNED_BLOCK, g->node[i].from, size, true, c, slot);
      return;
    case FORK: learn(&lanes[1 - lane], c); return;
    case RECORD: o->event[g->node[i].e] = *c; return;
    default: learn(c, &o->event[g->node[i].e]);
  }
}

static void launch(struct machine *m, const struct act *a, bool real) {
  struct model *o = &m->model;
  const int i = a->other % GRAPHS;
  const struct graph *g = &m->graph[i];
  struct clock *c = &o->stream[a->s].clock, lanes[LANES];
  queue(o, a->s);
  learn(c, &o->launched[i]);
  for (int l = 0; l < LANES; l++) lanes[l] = *c;
  for (int n = 0; n < g->count; n++) run_node(o, g, n, lanes);
  for (int l = 0; l < LANES; l++) learn(c, &lanes[l]);
  o->launched[i] = *c;
  if (real) OK(cuGraphLaunch(g->exec, m->stream[a->s]));
}

static void perform(struct machine *m, const struct act *a, bool real) {
  if (a->what < 6)
    copy_and_set(m, a, real);
  else if (a->what == 6)
    host_access(m, a, real);
  else if (a->what == 7)
    pool(m, a, real);
  else if (a->what < 12)
    event(m, a, real);
  else if (a->what < 16)
    stream(m, a, real);
  else
    launch(m, a, real);
}

static void choose(struct machine *m, struct act *a) {
  static const int weights[] = {4, 4, 4, 3, 1, 2, 3, 4, 9, 12, 3, 2, 4, 2, 1, 1, 6};
  unsigned at = draw(m, 65);
  a->what = 0;
  while (at >= (unsigned)weights[a->what]) at -= (unsigned)weights[a->what++];
  a->s = (int)draw(m, STREAMS);
  a->e = (int)draw(m, EVENTS);
  a->other = (int)draw(m, 4);
  a->size = 1 + (int)draw(m, 8);
  a->start = (int)draw(m, BYTES - 8);
  a->from = (int)draw(m, BYTES - 8);
}

static void begin(struct machine *m, uint64_t seed) {
  static const struct machine none;
  *m = none;
  m->random = seed * 2654435761u + 1;
  m->model.slots = 1;
  for (int s = 0; s < STREAMS; s++) m->model.stream[s].slot = m->model.slots++;
  m->stream[LEGACY] = CU_STREAM_LEGACY;
  m->stream[PER_THREAD] = CU_STREAM_PER_THREAD;
  for (int s = FIRST_ORDINARY; s < STREAMS; s++) m->stream[s] = is_blocking(s) ? new_blocking_stream() : new_stream();
  for (int e = 0; e < EVENTS; e++) m->event[e] = new_event();
  m->device = new_memory(2 * BYTES);
  m->pinned = new_pinned(2 * BYTES);
  for (int g = 0; g < GRAPHS; g++) {
    draw_graph(m, &m->graph[g]);
    capture(m, &m->graph[g]);
  }
}

/* Answers whether the program has a race. */
static bool run_program(struct machine *m, uint64_t seed) {
  CUcontext context;
  OK(cuCtxCreate_v2(&context, 0, 0));
  begin(m, seed);
  const bool careful = seed % 2;
  for (unsigned left = 5 + draw(m, 50); left > 0 && !m->model.race; left--) {
    struct act a;
    static struct machine before;
    choose(m, &a);
    before = *m;
    perform(m, &a, false);
    const bool race = m->model.race;
    const uint64_t random = m->random;
    *m = before;
    m->random = random;
    if (race && careful) continue;
    size_t told = strlen(m->told);
    snprintf(m->told + told, sizeof m->told - told, "%d(s%d e%d o%d %d+%d %d) ", a.what, a.s, a.e, a.other, a.start,
             a.size, a.from);
    for (int n = 0; a.what == 16 && n < m->graph[a.other % GRAPHS].count; n++) {
      const struct graph *g = &m->graph[a.other % GRAPHS];
      told = strlen(m->told);
      snprintf(m->told + told, sizeof m->told - told, "%d[l%d e%d %d+%d %d] ", g->node[n].what, g->node[n].lane,
               g->node[n].e, g->node[n].start, g->node[n].size, g->node[n].from);
    }
    perform(m, &a, true);
  }
  cudasim_drain();
  const bool found = reports("violations", "\"");
  if (found != m->model.race)
    stop("program %llu: %s: %s", (unsigned long long)seed,
         found ? "a violation in a right program" : "a race that is not reported", m->told);
  cudasim_forget_violations();
  for (int g = 0; g < GRAPHS; g++) OK(cuGraphExecDestroy(m->graph[g].exec));
  OK(cuCtxDestroy_v2(context));
  return m->model.race;
}

static void run_programs(uint64_t seed) {
  static struct machine m;
  const char *count = getenv("RANDOM_PROGRAMS"); /* make soak asks for more */
  const int programs = count ? atoi(count) : 400;
  int races = 0;
  OK(cuInit(0));
  for (int i = 0; i < programs; i++) races += run_program(&m, seed + (uint64_t)i);
  CHECK(races > programs / 4 && races < 3 * programs / 4); /* else nothing was shown */
}

BARE(random_programs_are_judged_rightly, "", .races = true) { run_programs(1); }
BARE(random_programs_are_judged_rightly_when_late, "delay=20", .races = true) { run_programs(1000001); }
BARE(random_programs_are_judged_rightly_in_random_order, "schedule=random,delay=20", .races = true) {
  run_programs(2000001);
}
BARE(random_programs_are_judged_rightly_when_lazy, "schedule=lazy", .races = true) { run_programs(3000001); }
