/* Pointers of which each thread has its own. For _Thread_local, gcc needs a library of pthreads on Windows, which
 * programs would have to ship. */
#pragma once

#ifdef _WIN32
#include <windows.h>

/* Defines name(), which returns the pointer, NULL at first, and set_name(pointer). */
#define CDEVICE_V0_LOCAL(type, name)                                                            \
  static DWORD name##_index;                                                                    \
  __attribute__((constructor)) static void allocate_##name(void) { name##_index = TlsAlloc(); } \
  static type* name(void) { return TlsGetValue(name##_index); }                                 \
  static void set_##name(type* pointer) { TlsSetValue(name##_index, pointer); }
#else
#define CDEVICE_V0_LOCAL(type, name)                 \
  static _Thread_local type* name##_pointer;         \
  static type* name(void) { return name##_pointer; } \
  static void set_##name(type* pointer) { name##_pointer = pointer; }
#endif
