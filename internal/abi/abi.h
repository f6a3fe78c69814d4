/* The C structs of the Arrow interfaces: the header that users of this module include. */
#pragma once

#include "../../cdevice/include/arrow_device.h"
