/* What the report says of two accesses of which neither is ordered after the other. */
#include "sim.h"

#include <stdlib.h>

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
  fprintf(f, ": while they are captured, record an event after %s in %s and let %s wait for it before %s", before->call,
          label_name(before->captured), label_name(after->captured), after->call);
}

static void advise(FILE *f, const struct access *before, const struct access *after) {
  const char *first = call_of(before), *second = call_of(after);
  const char *there = label_name(before->stream), *here = label_name(after->stream);
  if (!before->stream && !after->stream) return;
  fprintf(f, ": ");
  if (!before->stream)
    fprintf(f, "the host must do it before %s is queued, or wait for that first", second);
  else if (!after->stream)
    fprintf(f, "wait for %s, or for an event recorded after it in %s, before %s", first, there, second);
  else
    fprintf(f, "record an event after %s in %s and let %s wait for it before %s", first, there, here, second);
}

static void tell_origins(FILE *f, const struct access *before, const struct access *after) {
  const char *there = label_origin(before->stream), *here = label_origin(after->stream);
  if (there) fprintf(f, "; %s is %s", label_name(before->stream), there);
  if (here && after->stream != before->stream) fprintf(f, "; %s is %s", label_name(after->stream), here);
  if (before->stack) fprintf(f, "; the earlier was queued at %s", before->stack);
  if (after->stack) fprintf(f, "; the later at %s", after->stack);
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
  return f;
}

static void end(FILE *f) {
  fclose(f);
  violation("%s", text);
  free(text);
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
    advise(f, before, after);
  tell_origins(f, before, after);
  end(f);
}

void conflict_kept(const struct extent *s, const struct access *kept, const struct access *after, bool writes) {
  FILE *f = begin();
  tell(f, after);
  fprintf(f, " %s ", writes ? "writes" : "reads");
  tell_memory(f, s);
  fprintf(f, " after its owner has given it back: a library keeps it for its next user");
  tell_origins(f, kept, after);
  end(f);
}

void conflict_pending(const struct extent *s, const struct access *before, bool wrote, const char *giver) {
  FILE *f = begin();
  tell(f, before);
  fprintf(f, " may still %s ", wrote ? "write" : "read");
  tell_memory(f, s);
  fprintf(f, " when its owner gives it back without having waited for that");
  if (before->stream)
    fprintf(f, ": name %s as one that uses the memory, or wait for %s", label_name(before->stream), before->call);
  if (label_origin(before->stream)) fprintf(f, "; %s is %s", label_name(before->stream), label_origin(before->stream));
  if (before->stack) fprintf(f, "; it was queued at %s", before->stack);
  if (giver) fprintf(f, "; the memory was given back at %s", giver);
  end(f);
}
