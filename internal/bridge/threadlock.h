/* Which thread this is. */
#pragma once

#include <stdint.h>

/* A number that no other thread has that is alive. */
uintptr_t cdevice_v0_thread(void);
