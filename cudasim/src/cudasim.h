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

/* Options are "name=value" pairs, separated by commas:
 *
 *   devices=N          devices of the machine, 0 to 16 (1). With 0 cuInit answers CUDA_ERROR_NO_DEVICE.
 *   delay=N            microseconds for which each queued operation lies before it is done (0)
 *   schedule=inorder   each operation lies for `delay` (the default)
 *   schedule=random    each operation lies for 0 to 2*`delay`, drawn from `seed`; frees, copies and
 *                      host functions of different streams are done in a random order (needs a delay)
 *   seed=N             of everything random (1)
 *   pageable_async=1   copies from and to pageable memory are queued like all others: the source is
 *                      read late. 0: they are as a driver usually does them, see README (0)
 *   memory=BYTES       of each device (17179869184)
 *   host_memory=BYTES  that can be page-locked (17179869184)
 *   version=N          what cuDriverGetVersion answers (12040; 13000 with -DCUDASIM_13). A library that was
 *                      built with -DCUDASIM_13 has the names that came with CUDA 13 and takes versions from
 *                      13000 on, one that was built without takes those before
 *   pools=0            no stream-ordered allocation: the attribute says so, its functions answer
 *                      CUDA_ERROR_NOT_SUPPORTED (1)
 *   managed=0          no managed memory, likewise (1)
 *   peer=0             devices cannot access each other's memory; copies between them still work (1)
 *   poison=0           fresh and freed memory is left as it is, not filled with garbage (1)
 *   report=PATH        at exit (not _exit, nor Go's os.Exit) cudasim_report is written there; "-"
 *                      means standard error, and then only if something leaked or was violated (none)
 *
 * Called before the first call of the driver API; later it answers -1 and changes nothing. Without
 * it, the environment variable CUDASIM is read at that first call. Unknown names and bad values
 * answer -1 and say why on standard error (from the environment: and abort the process). */
int cudasim_configure(const char *options);

/* The k-th call from now, counted from 1, of `function` (its name without _v2, _ptsz and the like;
 * NULL: of any function) does nothing and answers `result`. One fault at a time; k = 0 takes it
 * away. cuGetErrorName, cuGetErrorString and cuGetProcAddress never fail and are not counted here. */
void cudasim_fail(const char *function, uint64_t k, int result);

/* Whether the fault was met. *function is the name of the call that failed, NULL if none did. */
int cudasim_failed(const char **function);

/* No stream starts another operation until cudasim_resume. What already runs is finished first:
 * when cudasim_pause returns, nothing runs. Calls that wait, wait. Not counted, calls do not nest. */
void cudasim_pause(void);
void cudasim_resume(void);

/* Records of this event complete only after cudasim_event_fire, and the stream does not go on
 * before it either. An event that was destroyed meanwhile can still be fired. Answers a CUresult. */
int cudasim_event_hold(void *event);
int cudasim_event_fire(void *event);

/* Calls so far of one function, named as in cudasim_fail; of all if NULL. */
uint64_t cudasim_calls(const char *function);

/* All counters back to zero; what is live stays live. Violations are forgotten. */
void cudasim_reset_counters(void);

/* Everything that is counted, as a JSON object, in `out` if its `size` (with the final NUL) is
 * enough. Returns the size that is enough. Keys:
 *
 *   calls             {"cuMemAlloc": 3, ...}: calls per function, only those called
 *   failed_calls      calls that answered anything but CUDA_SUCCESS and CUDA_ERROR_NOT_READY
 *   synchronisations  calls that waited, or may have waited, on the calling thread for queued work
 *   bytes             {"htod", "dtoh", "dtod", "peer", "htoh", "memset"}: copied or set by operations done
 *   staged_bytes      of those copied from or to pageable host memory
 *   live              {"device_bytes": [per device], "managed_bytes", "host_bytes", "registered_bytes",
 *                      "allocations", "pools", "streams", "events", "contexts",
 *                      "primary_references": [per device]}
 *   peak_device_bytes [per device]
 *   leaks             ["cuMemAlloc: 4096 bytes at 0x... on device 0", "cuEventCreate: 0x... on device 0",
 *                     ...]: what is live, one by one; first the function that made it. References to
 *                     primary contexts are leaks too.
 *   violations        ["..."]: what the driver would not have noticed, or only as a crash: work that
 *                     touched freed memory or memory of a stream-ordered allocation out of order,
 *                     driver calls from host functions, ... */
size_t cudasim_report(char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
