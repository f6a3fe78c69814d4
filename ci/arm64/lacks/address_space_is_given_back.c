/* A process that unmaps memory is as small as before: a test bounds the size that many simulated machines leave. */
#include <stdio.h>
#include <sys/mman.h>

static long size_in_pages(void) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  return file && fscanf(file, "%ld", &pages) == 1 && !fclose(file) ? pages : -1;
}

int main(void) {
  const size_t gigabyte = 1 << 30;
  long before = size_in_pages();
  for (size_t i = 1; i < 64; i++) {
    void* p = mmap((char*)0x300000000000 + i * gigabyte, gigabyte, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(p, gigabyte);
  }
  return size_in_pages() - before > 1000;
}
