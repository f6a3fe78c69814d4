/* Writing the report before the process ends. */
#include "rules.h"

static char *path(void) { /* of the option report, which the test that runs the rules adds */
  static char text[4096];
  const char *at = strstr(getenv("CUDASIM"), "report=");
  CHECK(at != NULL);
  snprintf(text, sizeof text, "%s", at + strlen("report="));
  text[strcspn(text, ",")] = '\0';
  return text;
}

static bool file_has(const char *needle) {
  static char text[1 << 16];
  FILE *f = fopen(path(), "r");
  if (f == NULL) return false;
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  return strstr(text, needle) != NULL;
}

RULE(the_report_is_written_on_demand, "") {
  use(0);
  CUdeviceptr m = new_memory(4096);
  CHECK(!file_has("leaks"));
  SAME(cudasim_write_report(), 0);
  CHECK(file_has("cuMemAlloc: 4096 bytes"));
  OK(cuMemFree_v2(m));
  SAME(cudasim_write_report(), 0); /* the latest stays */
  CHECK(file_has("leaks") && !file_has("cuMemAlloc: 4096 bytes"));
}

RULE(without_the_option_no_report_is_written, "", .unreported = true) {
  SAME(cudasim_configure(""), 0);
  use(0);
  SAME(cudasim_write_report(), 0);
}

RULE(a_report_that_cannot_be_written_is_an_error, "", .unreported = true) {
  SAME(cudasim_configure("report=/nowhere/at/all"), 0);
  use(0);
  SAME(cudasim_write_report(), -1);
}
