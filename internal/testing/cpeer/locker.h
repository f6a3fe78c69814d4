/* A producer with a lock: request and cancel take it, and it is held while the handler is released.
 * Its thread frees it then. */
#pragma once

#include <stdint.h>

#include "../../abi/abi.h"
#include "cpeer.h"

/* How it ends, unless it is cancelled before: the call before release, without the lock. */
enum { CPEER_LOCKER_END, CPEER_LOCKER_ERROR };

/* Starts a producer of so many batches, made of the tree, for the handler, on a thread of its own.
 * request and cancel take nap microseconds before they take the lock; the producer naps half as
 * long before it ends. Returns an errno. */
int cpeer_locker_start(struct ArrowAsyncDeviceStreamHandler* handler, const struct cpeer_node* tree,
                       struct ArrowSchema* schema, int64_t batches, int how, int64_t nap);
/* Waits until all of them have ended, for some seconds at most, and returns how many have not. */
int64_t cpeer_lockers_left(int64_t seconds);
/* Tasks that were not extracted. */
int64_t cpeer_locker_tasks(void);
