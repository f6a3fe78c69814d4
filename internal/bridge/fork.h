/* No Go runtime survives a fork: the child has one thread, and a call into Go hangs there, at
 * once or later. Every callback that calls Go asks first. */
#pragma once

#include <errno.h>

/* Reports whether this process was forked from one that had loaded this library, and has not
 * replaced itself since. */
int cdevice_v0_forked(void);

/* What callbacks return in such a process, and the text of get_last_error. */
#define CDEVICE_FORKED ENOTSUP
extern const char cdevice_v0_forked_text[];
