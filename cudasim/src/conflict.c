/* What the report says of two accesses of which neither is ordered after the other. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static const char launch[] = "cuGraphLaunch";

/* Where an access was made: "cuMemsetD8Async in stream 3 of GPU 0". */
static void tell(FILE *f, const struct access *a) {
  if (a->captured) {
    fprintf(f, "%s, captured in %s and launched by %s in %s,", a->call, label_name(a->captured), launch,
            label_name(a->stream));
    return;
  }
  fprintf(f, a->stream ? "%s in %s" : "%s by %s", a->call, label_name(a->stream));
}

/* Outside of a graph, its nodes come before or after other work together. */
static const char *call_of(const struct access *a) { return a->captured ? launch : a->call; }

static void advise_capture(FILE *f, const struct access *before, const struct access *after) {
  fprintf(f, ": while they are captured, call cuEventRecord in %s after %s, and cuStreamWaitEvent in %s before %s",
          label_name(before->captured), before->call, label_name(after->captured), after->call);
}

/* A program that calls the driver itself. */
static void advise_cuda(FILE *f, const struct access *before, const struct access *after) {
  const char *first = call_of(before), *second = call_of(after);
  const char *there = label_name(before->stream), *here = label_name(after->stream);
  if (after->stream)
    fprintf(f, "call cuEventRecord in %s after %s, and cuStreamWaitEvent in %s before %s", there, first, here, second);
  else
    fprintf(f, "call cuStreamSynchronize of %s, or cuEventSynchronize of an event recorded there after %s, before %s",
            there, first, second);
}

static bool begins(const char *text, const char *with) { return text && !strncmp(text, with, strlen(with)); }

static void advise_free(FILE *f, const struct access *before, const struct caller *by) {
  if (caller_has_memory(by))
    fprintf(f, "call m.Free(stream) with %s, or m.FreeAfter(event) with an event behind %s", label_name(before->stream),
            call_of(before));
  else
    fprintf(f, "call batch.UsedOn(stream) with %s before the release", label_name(before->stream));
}

static void advise_order(FILE *f, const struct access *before, bool wrote, const struct access *after) {
  const char *first = call_of(before), *second = call_of(after);
  const char *there = label_name(before->stream), *here = label_name(after->stream);
  if (begins(before->call, "cuMemAlloc"))
    fprintf(f, "allocate the memory on %s, or ", here);
  else if (wrote)
    fprintf(f,
            "call batch.WithEvent(stream) with %s after %s, and batch.WaitOn(stream) of what it returns with %s before "
            "%s; without a batch, ",
            there, first, here, second);
  fprintf(f, "call stream.Record(event) of %s after %s, and stream.WaitEvent(event) of %s before %s", there, first,
          here, second);
}

/* A copy of a batch, in a stream that the program does not have. */
static void advise_copy(FILE *f, const struct access *before, const struct access *after) {
  const bool own = label_own(before->stream);
  fprintf(f, "call %sbatch.WithEvent(stream) with %s after %s, and use what it returns for %s",
          own ? "batch.WaitOn(stream) with a stream of the program, and " : "",
          own ? "the same one" : label_name(before->stream), before->call, after->call);
}

/* A program that does it by the functions of this library. */
static void advise_go(FILE *f, const struct access *before, bool wrote, const struct access *after) {
  const char *second = call_of(after);
  if (!after->stream && label_own(before->stream))
    fprintf(f, "call batch.Synchronize(ctx) before %s", second);
  else if (!after->stream)
    fprintf(f, "call stream.Synchronize(ctx) of %s before %s", label_name(before->stream), second);
  else if (begins(after->call, "cuMemFree"))
    advise_free(f, before, after->caller);
  else if (wrote && label_own(after->stream) && !begins(before->call, "cuMemAlloc"))
    advise_copy(f, before, after);
  else if (wrote && !caller_has_memory(before->caller) && caller_library(before->caller))
    fprintf(f, "call batch.WaitOn(stream) with %s before %s", label_name(after->stream), second);
  else
    advise_order(f, before, wrote, after);
}

static void advise(FILE *f, const struct access *before, bool wrote, const struct access *after) {
  if (!before->stream && !after->stream) return;
  fprintf(f, ": ");
  if (!before->stream)
    fprintf(f, "the host must do it before %s is queued, or wait for that first", call_of(after));
  else if (caller_library(before->caller) || caller_library(after->caller))
    advise_go(f, before, wrote, after);
  else
    advise_cuda(f, before, after);
}

static bool placed;

static void tell_caller(FILE *f, const char *what, struct caller *c) {
  if (!caller_text(c)) return;
  fprintf(f, "; %s at %s", what, caller_text(c));
  placed = true;
}

static void tell_origins(FILE *f, const struct access *before, const struct access *after) {
  const char *there = label_origin(before->stream), *here = label_origin(after->stream);
  tell_caller(f, before->captured ? "the earlier was captured" : "the earlier was queued", before->caller);
  tell_caller(f, after->captured ? "the later was captured" : "the later", after->caller);
  if (before->launch != after->launch) {
    tell_caller(f, "the earlier was launched", before->launcher);
    tell_caller(f, "the later was launched", after->launcher);
  }
  if (there) fprintf(f, "; %s is %s", label_name(before->stream), there);
  if (here && after->stream != before->stream) fprintf(f, "; %s is %s", label_name(after->stream), here);
}

static void tell_memory(FILE *f, const struct extent *s) {
  const struct block *b = s->block;
  fprintf(f, "memory at 0x%zx to 0x%zx (%s, %zu bytes at 0x%zx, device %d)", (size_t)s->start, (size_t)s->end, b->call,
          b->size, (size_t)b->address, b->device);
}

static char *text;
static size_t size;

static FILE *begin(void) {
  FILE *f = open_memstream(&text, &size);
  if (!f) abort();
  placed = false;
  return f;
}

static void end(FILE *f) {
  fclose(f);
  violation_told(text, placed);
}

void conflict(const struct extent *s, const struct access *before, bool wrote, const struct access *after,
              bool writes) {
  FILE *f = begin();
  tell(f, after);
  fprintf(f, " %s ", writes ? "writes" : "reads");
  tell_memory(f, s);
  fprintf(f, " that ");
  tell(f, before);
  fprintf(f, " %s, and is not ordered after it", wrote ? "writes" : "reads");
  if (before->launch && before->launch == after->launch)
    advise_capture(f, before, after);
  else
    advise(f, before, wrote, after);
  tell_origins(f, before, after);
  end(f);
}

void conflict_kept(const struct extent *s, const struct access *kept, const struct access *after, bool writes) {
  FILE *f = begin();
  tell(f, after);
  fprintf(f, " %s ", writes ? "writes" : "reads");
  tell_memory(f, s);
  fprintf(f, " after its owner has given it back: a library keeps it, for its next user or until the GPU is idle");
  tell_origins(f, kept, after);
  end(f);
}

static void advise_pending(FILE *f, const struct access *before, struct caller *giver) {
  const char *stream = label_name(before->stream), *by = caller_library(giver);
  fprintf(f, ": ");
  if (!by)
    fprintf(f, "name %s as one that uses the memory, or call cuStreamSynchronize of it after %s", stream, before->call);
  else if (begins(by, "memory/hostpinned"))
    fprintf(f, "call stream.Synchronize(ctx) of %s before", stream);
  else
    advise_free(f, before, giver);
}

void conflict_pending(const struct extent *s, const struct access *before, bool wrote, struct caller *giver) {
  FILE *f = begin();
  tell(f, before);
  fprintf(f, " may still %s ", wrote ? "write" : "read");
  tell_memory(f, s);
  fprintf(f, " when its owner gives it back without having waited for that");
  if (before->stream) advise_pending(f, before, giver);
  tell_caller(f, before->captured ? "it was captured" : "it was queued", before->caller);
  tell_caller(f, "the memory was given back", giver);
  if (label_origin(before->stream)) fprintf(f, "; %s is %s", label_name(before->stream), label_origin(before->stream));
  end(f);
}
