/* Violations. Those of one kind are one of the list, and are counted: they differ in addresses, in the streams and in
 * sizes. Where no place is known, as in a program in Python, those of other sizes are of other kinds. */
#include "sim.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Leaves out what differs within a kind: addresses, numbers of streams, where a stream was made, and sizes, unless
 * these are all that tells places apart. An address that tells a place in a program follows "(+". */
char *text_kind(const char *text, bool placed) {
  static const char stream[] = "stream ", bytes[] = " bytes", origin[] = "; stream ";
  char *kind = fresh(strlen(text) + 1), *k = kind;
  for (const char *at = text, *end; *at; at = end) {
    for (end = at; isdigit((unsigned char)*end); end++) continue;
    if (!strncmp(at, origin, strlen(origin))) {
      end = at + 1 + strcspn(at + 1, ";");
    } else if (!strncmp(at, " 0x", 3)) {
      end = at + 3 + strspn(at + 3, "0123456789abcdef");
      *k++ = ' ';
    } else if (end == at) {
      *k++ = *end++;
    } else if ((!placed || strncmp(end, bytes, strlen(bytes))) &&
               ((size_t)(at - text) < strlen(stream) || strncmp(at - strlen(stream), stream, strlen(stream)))) {
      memcpy(k, at, (size_t)(end - at));
      k += end - at;
    }
  }
  return kind;
}

void violation_told(char *text, bool placed) {
  ledger_open(); /* a forked child may have made no call yet */
  char *kind = text_kind(text, placed);
  int i = 0;
  while (i < sim.violation_kinds && strcmp(sim.violations[i].kind, kind)) i++;
  sim.violation_count++;
  if (i == sim.violation_kinds && i < MOST_VIOLATIONS) {
    sim.violations[sim.violation_kinds++] = (struct violation){text, kind, 1};
    ledger_violation(i, text);
    return;
  }
  if (i < MOST_VIOLATIONS) sim.violations[i].times++;
  ledger_repeated(i < MOST_VIOLATIONS ? i : -1);
  free(kind);
  free(text);
}

static void tell(const char *what, const struct caller *place, const char *format, va_list args) {
  char *text, *all;
  const char *at = caller_text(place);
  if (vasprintf(&text, format, args) < 0) abort();
  if (asprintf(&all, "%s%s%s%s%s", text, at ? "; " : "", at ? what : "", at ? " at " : "", at ? at : "") < 0) abort();
  free(text);
  violation_told(all, at);
}

void violation(const char *format, ...) {
  va_list args;
  va_start(args, format);
  tell("the call is", caller_of_call(), format, args);
  va_end(args);
}

void violation_of(const struct op *op, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tell(op->stream->captured ? "it was captured" : "it was queued", op->caller, format, args);
  va_end(args);
}

char *violation_text(const struct violation *v) {
  char *text;
  int n = v->times > 1 ? asprintf(&text, "%s; %llu times", v->text, (unsigned long long)v->times)
                       : asprintf(&text, "%s", v->text);
  if (n < 0) abort();
  return text;
}

void violations_forget(void) {
  for (int i = 0; i < sim.violation_kinds; i++) {
    free(sim.violations[i].text);
    free(sim.violations[i].kind);
  }
  sim.violation_kinds = 0;
  sim.violation_count = 0;
  ledger_forget_violations();
}

void cudasim_forget_violations(void) {
  sim_lock();
  violations_forget();
  sim_unlock();
}
