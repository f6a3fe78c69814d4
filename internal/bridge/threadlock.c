#include "threadlock.h"

#ifdef _WIN32
#include <windows.h>

uintptr_t cdevice_v0_thread(void) { return GetCurrentThreadId(); }
#else
#include <pthread.h>

uintptr_t cdevice_v0_thread(void) { return (uintptr_t)pthread_self(); }
#endif
