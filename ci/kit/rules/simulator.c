/* What the simulated driver reports beyond what a driver shows: violations, and objects that are left. */
#include "rules.h"

bool is_simulated(void) { return find_function("cudasim_report") != NULL; }

/* To be freed; NULL: the driver is a real one. */
char* simulator_report(void) {
  size_t (*report)(char*, size_t), size = 1 << 16, enough;
  char* text = NULL;
  *(void**)&report = find_function("cudasim_report");
  if (report == NULL) return NULL;
  do {
    text = realloc(text, size);
    enough = report(text, size);
  } while (enough > size && (size = enough));
  return text;
}

static char* report_at_the_end(void) {
  void (*drain)(void);
  *(void**)&drain = find_function("cudasim_drain");
  if (drain != NULL) drain();
  return simulator_report();
}

/* The list under a key, cut out of the report. */
static char* list_of(char* report, const char* key) {
  char* at = strstr(report, key);
  if (at == NULL) stop("the report has no %s: %s", key, report);
  at = strchr(at, '[') + 1;
  *strchr(at, ']') = '\0';
  return at;
}

/* But for references to primary contexts, which are retained once for all rules. */
int objects_left(void) {
  int left = 0;
  char* report = report_at_the_end();
  if (report == NULL) return 0;
  for (char* at = list_of(report, "\"leaks\":"); (at = strchr(at, '"')) != NULL; at = strchr(at + 1, '"') + 1)
    left += strncmp(at, "\"cuDevicePrimaryCtxRetain:", 26) != 0;
  free(report);
  return left;
}

void check_violations(bool expected) {
  char* report = report_at_the_end();
  if (report == NULL) return;
  char* violations = list_of(report, "\"violations\":");
  bool any = strchr(violations, '"') != NULL;
  if (any != expected) differs("the simulator reports %s", any ? violations : "no violation");
  free(report);
}
