/* What counts while a path runs: this program's calls of malloc, and the marks at which callgrind counts instructions.
 */
#pragma once

#include <stdint.h>

/* callgrind zeroes its counts where window_begin is entered, and writes them down where window_end is. */
void window_begin(void);
void window_end(void);

/* The calls of malloc, calloc, realloc and aligned_alloc by the code of the program itself: not by a shared library. */
int64_t window_mallocs(void);
