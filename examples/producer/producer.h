#include <arrow_device.h>

// Fills out with a batch of one column of int32, which the GPU is still filling with value. Returns 0, or the code of
// the driver.
int produce(int32_t value, int64_t rows, struct ArrowDeviceArray* out);
