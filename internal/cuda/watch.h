/* What this library tells a simulated driver, which checks the order of the program's work: see
 * cudasim/src/cudasim.h. No other driver has these functions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* X(name, result, parameters) */
#define CDEVICE_V0_CUDA_WATCHER(X)                      \
  X(cudasim_internal_begin, void, (uintptr_t*, size_t)) \
  X(cudasim_internal_end, void, (void))                 \
  X(cudasim_give_back, void, (uintptr_t))               \
  X(cudasim_keep, void, (uintptr_t, size_t))            \
  X(cudasim_hand_out, void, (uintptr_t, size_t))        \
  X(cudasim_free_later, void, (uintptr_t))              \
  X(cudasim_publish, void, (uintptr_t))                 \
  X(cudasim_act, uintptr_t, (uintptr_t))                \
  X(cudasim_forget, void, (uintptr_t))                  \
  X(cudasim_cover, void, (uintptr_t, uintptr_t))        \
  X(cudasim_read, void, (uintptr_t, size_t, uintptr_t)) \
  X(cudasim_wants_callers, int, (void))                 \
  X(cudasim_caller, void, (const char*))
