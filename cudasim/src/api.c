/* The functions of the driver API: each is counted, may be made to fail by a fault, and runs under
 * the lock of the machine. The other files implement them. */
#include "sim.h"

#define BODY(symbol, name, per_thread, early, body, params, args) \
  CUresult symbol params {                                        \
    static struct call call = {name, 0, false, NULL};             \
    CUresult result = call_begin(&call, per_thread, early, HERE); \
    return call_end(result ? result : body args);                 \
  }

/* The name is taken before the preprocessor may rename the symbol, which is how a driver without
 * the function is built. */
#define API(base, suffix, since, body, params, args) BODY(base##suffix, #base, false, false, body, params, args)
#define API_EARLY(base, suffix, since, body, params, args) BODY(base##suffix, #base, false, true, body, params, args)
#define API_PTDS(base, suffix, since, body, params, args)     \
  BODY(base##suffix, #base, false, false, body, params, args) \
  BODY(base##suffix##_ptds, #base, true, false, body, params, args)
#define API_PTSZ(base, suffix, since, body, params, args)     \
  BODY(base##suffix, #base, false, false, body, params, args) \
  BODY(base##suffix##_ptsz, #base, true, false, body, params, args)

#include "functions.h"
