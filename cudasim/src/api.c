/* The functions of the driver API: each is counted, may be told to fail, and runs
 * under the lock of the machine. What they do is in the other files. */
#include "sim.h"

#define BODY(symbol, name, per_thread, early, body, params, args) \
  CUresult symbol params {                                        \
    static struct call call = {name, 0, false, NULL};             \
    CUresult result = call_begin(&call, per_thread, early);       \
    return call_end(result ? result : body args);                 \
  }

/* The name is taken before the preprocessor may have renamed the symbol: that is
 * how a driver is built that lacks a function. */
#define API(base, suffix, since, body, params, args) BODY(base##suffix, #base, false, false, body, params, args)
#define API_EARLY(base, suffix, since, body, params, args) BODY(base##suffix, #base, false, true, body, params, args)
#define API_PTDS(base, suffix, since, body, params, args)     \
  BODY(base##suffix, #base, false, false, body, params, args) \
  BODY(base##suffix##_ptds, #base, true, false, body, params, args)
#define API_PTSZ(base, suffix, since, body, params, args)     \
  BODY(base##suffix, #base, false, false, body, params, args) \
  BODY(base##suffix##_ptsz, #base, true, false, body, params, args)

#include "functions.h"
