/* The registers of SIGBUS have the address that was accessed: Go takes it from there for its errors. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static volatile char* address;

static void compare(int signal, siginfo_t* info, void* context) {
  const mcontext_t* registers = &((const ucontext_t*)context)->uc_mcontext;
  (void)signal, (void)info;
#ifdef __aarch64__
  _exit(registers->fault_address != (uintptr_t)address);
#else
  _exit(registers->gregs[REG_CR2] != (greg_t)(uintptr_t)address);
#endif
}

int main(void) {
  sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = compare, .sa_flags = SA_SIGINFO}, NULL);
  address = (char*)mmap(NULL, 1 << 16, PROT_READ, MAP_SHARED, memfd_create("empty", 0), 0) + 5;
  return *address + 1;
}
