/* A second mapping of shared memory: internal/bridge puts dead producers in the place of a chunk. */
#include <stddef.h>
#include <sys/mman.h>

int main(void) {
  char* shared = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  char* place = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *shared = 7;
  return mremap(shared, 0, 1 << 16, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED || *place != 7;
}
