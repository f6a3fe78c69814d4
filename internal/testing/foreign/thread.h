/* Go functions on threads that Go has never seen. */
#pragma once

#include <stdint.h>

/* In Go: calls the function of a handle. */
void foreign_go_call(uintptr_t function);

/* Calls foreign_go_call on a new thread, and waits for it. Returns 0, or an errno. */
int foreign_call_on_thread(uintptr_t function);
