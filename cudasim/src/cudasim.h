/* Control of the simulated CUDA driver: options, faults, counters, leak report.
 *
 * These functions are exported by the same library as the driver API. A program
 * that was written for CUDA needs none of them: it is configured by the
 * environment variable CUDASIM. Tests find them with dlsym.
 *
 * One loaded copy of the library is one machine. A copy of the file under another
 * name, loaded in the same process, is another machine. */
#ifndef CUDASIM_H
#define CUDASIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options are "name=value" pairs, separated by commas: README.md lists them.
 *
 * Called before the first call of the driver API; later it answers -1 and changes nothing. Without
 * it, the environment variable CUDASIM is read at that first call, or, if the program has removed it,
 * taken as it was when the library was loaded. Unknown names and bad values answer -1 and say why on
 * standard error (from the environment: and abort the process). */
int cudasim_configure(const char *options);

/* The k-th call from now, counted from 1, of `function` (its name without _v2, _ptsz and the like;
 * NULL: of any function) does nothing and answers `result`. One fault at a time; k = 0 takes it
 * away. cuGetErrorName, cuGetErrorString and cuGetProcAddress never fail and are not counted here. A
 * result that says that the context is gone (709, 719) does not end it: work that is queued goes on. */
void cudasim_fail(const char *function, uint64_t k, int result);

/* The same for `times` calls in a row, from the k-th on: a fault that lasts. */
void cudasim_fail_times(const char *function, uint64_t k, uint64_t times, int result);

/* Whether the fault was met. *function is the name of the call that failed, NULL if none did. */
int cudasim_failed(const char **function);

/* No stream starts another operation until cudasim_resume. Returns once the running operations have
 * completed. Calls that wait for queued work block. Calls do not nest. */
void cudasim_pause(void);
void cudasim_resume(void);

/* Records of this event complete only after cudasim_event_fire, and the stream does not go on
 * before it either. An event that was destroyed meanwhile can still be fired. Answers a CUresult. */
int cudasim_event_hold(void *event);
int cudasim_event_fire(void *event);

/* Calls so far of one function, named as in cudasim_fail; of all if NULL. */
uint64_t cudasim_calls(const char *function);

/* Sets all counters to zero. Live objects and violations are kept. */
void cudasim_reset_counters(void);

/* The host reads or writes page-locked, registered or managed memory now. The simulator does not see
 * the host's own accesses: a program that declares them has them checked as it does those of copies.
 * Pageable memory is ignored; device memory is a violation. */
void cudasim_host_read(const void *address, size_t size);
void cudasim_host_write(void *address, size_t size);

/* With threads=1 each thread of the host knows only what it has waited for itself. What a thread knows at
 * cudasim_host_signal, every thread knows that calls cudasim_host_wait with the same key afterwards: a
 * program calls the one before it gives a lock back or sends, and the other after it has taken the lock
 * or received. A new thread knows what all others know at its first call, and all know what a thread
 * knew when it ended. Without the option, these do nothing. */
void cudasim_host_signal(const void *key);
void cudasim_host_wait(const void *key);

/* For libraries that keep memory, streams and events for their next user.
 *
 * Such a library queries and waits for its own ends. When it does so depends on time, so what it learns
 * must not count as known to the program. Between begin and end, calls of this thread are the library's:
 * what they learn is known to it alone, about the memory that each key stands for (the address of memory
 * that was given back, by custom), and the order of what they queue is checked with that knowledge,
 * while later work of the stream does not have it. The list of keys must live until the end. */
void cudasim_internal_begin(uintptr_t *keys, size_t count);
void cudasim_internal_end(void);

/* The user gives memory back now: what the calling thread knows, or, if it acts on something, what is known
 * for that, is known about the memory. What the program learns later is not. The key ends with
 * cudasim_forget, or when the memory is kept or freed. */
void cudasim_give_back(uintptr_t key);
void cudasim_forget(uintptr_t key);

/* The library promises to wait for all work that the context (a CUcontext) has now: when it does, it learns of that,
 * and not of work that was queued meanwhile. */
void cudasim_cover(uintptr_t key, void *context);

/* From now on this thread acts on what is known for the key, on what it acted on before, and on what the
 * program knows: it frees memory, say. 0 is no key. Returns the key before. */
uintptr_t cudasim_act(uintptr_t key);

/* The work that has read the memory is done, as is known for the key: the memory may be given back. The
 * program does not learn that. */
void cudasim_read(uintptr_t address, size_t size, uintptr_t key);

/* The program learns what is known for the key; 0: for that on which the thread acts. */
void cudasim_publish(uintptr_t key);

/* The library keeps the memory: no work uses it any more, as it knows from what was learned for its
 * address as the key. Work that may use it all the same is a violation, and so is every access until it is
 * handed out. `what` is an address, or, with size 0, the handle of a context, a stream, an event or a
 * pool. */
void cudasim_keep(uintptr_t what, size_t size);

/* A new user gets it, who is ordered after nothing: a stream without work, an event that was never
 * recorded, memory that nothing uses. */
void cudasim_hand_out(uintptr_t what, size_t size);

/* The library has the driver free, unregister or close the allocation at this address later: to its user, it is
 * gone. No work uses it any more, as is known for the address as the key. Work that may use it all the same is a
 * violation, and so is every access from now on. Memory of another process is gone when all that opened it say so. */
void cudasim_free_later(uintptr_t address);

/* Whether violations, streams and leaks say who made a call (option stacks=1): then a program may say it, for the
 * calls that follow on this thread, until it says NULL. Otherwise it is the place of the call in C. A library says
 * "PLACE IN THE PROGRAM, in FUNCTION OF THE LIBRARY". */
int cudasim_wants_callers(void);
void cudasim_caller(const char *text);

/* Waits until all queued work has completed, except work that is held back. Unordered accesses are
 * found when work is queued; what is found when it runs (work on memory that was freed, sources that
 * were overwritten) is in the report after this; the report at exit does so. It orders nothing. */
void cudasim_drain(void);
void cudasim_forget_violations(void);

/* Writes all counters as a JSON object to `out` if its `size` (with the final NUL) is sufficient.
 * Returns the sufficient size. Keys:
 *
 *   calls             {"cuMemAlloc": 3, ...}: calls per function, only those called
 *   failed_calls      calls that answered anything but CUDA_SUCCESS and CUDA_ERROR_NOT_READY
 *   synchronisations  calls that waited, or may have waited, on the calling thread for queued work
 *   bytes             {"htod", "dtoh", "dtod", "peer", "htoh", "memset"}: copied or set by operations done
 *   staged_bytes      of those copied from or to pageable host memory
 *   live              {"device_bytes": [per device], "managed_bytes", "host_bytes", "registered_bytes",
 *                      "allocations", "pools", "streams", "events", "contexts", "graphs",
 *                      "executable_graphs", "primary_references": [per device]}
 *   peak_device_bytes [per device]
 *   refused_addresses allocations that were CUDA_ERROR_OUT_OF_MEMORY because the process has no
 *                     address space left; the first one says so on standard error
 *   leaks             ["cuMemAlloc: 4096 bytes at 0x... on device 0", "cuEventCreate: 0x... on device 0",
 *                     ...]: what is live, one by one; first the function that made it. References to
 *                     primary contexts are leaks too.
 *   kept              ["..."]: what is live and no leak, because a library keeps it in a cache of its own
 *   violations        ["..."]: what the driver would not have noticed, or only as a crash: accesses that are
 *                     not ordered after conflicting ones, work that touched freed memory, memory freed
 *                     that another process has open, driver calls from host functions, ... */
size_t cudasim_report(char *out, size_t size);

/* Ends the machine: its address space is unmapped, its threads end, and every later call of the
 * driver, on any thread, returns CUDA_ERROR_DEINITIALIZED. Work that has not begun is dropped;
 * calls that wait return. The report does not change any more. Memory that is still allocated is
 * gone, page-locked and managed memory included: the host faults there. A host function of the
 * program that still runs is not waited for: it may be waiting for the program. */
void cudasim_shut_down(void);

/* Writes the report now to the file of the option `report`: for programs that end without running
 * atexit handlers (Go's return from main, os.Exit, _exit). A file then has the latest report;
 * standard error gets one for each call if there are leaks or violations. Returns 0, even without
 * the option, and -1 if the file cannot be written. */
int cudasim_write_report(void);

#ifdef __cplusplus
}
#endif
#endif
