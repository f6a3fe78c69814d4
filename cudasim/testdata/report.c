/* Writing the report before the process ends. */
#include "simulator.h"

/* Of the option report, which the test that runs the rules adds. Other rules may have left the file. */
static char *path(void) {
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

SIMULATED(the_report_is_written_on_demand, "") {
  CUdeviceptr m = new_memory(4096);
  remove(path());
  CHECK(!file_has("leaks"));
  SAME(cudasim_write_report(), 0);
  CHECK(file_has("cuMemAlloc: 4096 bytes"));
  OK(cuMemFree_v2(m));
  SAME(cudasim_write_report(), 0); /* the latest stays */
  CHECK(file_has("leaks") && !file_has("cuMemAlloc: 4096 bytes"));
}

BARE(without_the_option_no_report_is_written, "") {
  remove(path());
  SAME(cudasim_configure(""), 0);
  use(0);
  SAME(cudasim_write_report(), 0);
  CHECK(fopen(path(), "r") == NULL);
}

BARE(a_report_that_cannot_be_written_is_an_error, "") {
  SAME(cudasim_configure("report=/nowhere/at/all"), 0);
  use(0);
  SAME(cudasim_write_report(), -1);
}
