/* A driver that does some things wrong, and the rest as the driver it is linked to. */
#include <stdlib.h>
#include <unistd.h>

/* No work is ever pending. */
int cuEventQuery(void* event) {
  (void)event;
  return 0;
}

int cuMemsetD16_v2(unsigned long long to, unsigned short value, size_t count) {
  (void)to, (void)value, (void)count;
  abort();
}

int cuProfilerStart(void) { return 0; }

/* Two calls do not return. */
int cuCtxDetach(void* context) {
  (void)context;
  for (;;) pause();
}
int cuMemGetInfo_v2(size_t* available, size_t* total) {
  (void)available, (void)total;
  for (;;) pause();
}
