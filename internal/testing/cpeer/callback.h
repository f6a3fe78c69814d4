/* C that calls Go functions. */
#pragma once

#include <stdint.h>

#include "../../abi/abi.h"
#include "stream.h"

/* Go: calls the function of a handle. */
void cpeer_go_call(uintptr_t function);

/* Calls the function. */
void cpeer_call_back(uintptr_t function);

/* Calls the function, which exports a stream, and reads that to its end. */
void cpeer_call_and_drain(uintptr_t function, struct ArrowArrayStream* stream, struct cpeer_drained* out);
/* The same, on a thread that Go has never seen. Returns an errno. */
int cpeer_call_and_drain_on_thread(uintptr_t function, struct ArrowArrayStream* stream, struct cpeer_drained* out);
