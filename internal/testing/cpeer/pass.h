/* Consumers that only release. */
#pragma once

#include "../../abi/abi.h"

void cpeer_pass_schema(struct ArrowSchema* schema);
void cpeer_pass_array(struct ArrowArray* array);
void cpeer_pass_device_array(struct ArrowDeviceArray* array);
void cpeer_pass_stream(struct ArrowArrayStream* stream);
void cpeer_pass_device_stream(struct ArrowDeviceArrayStream* stream);
/* A producer that fails at once. */
void cpeer_pass_handler(struct ArrowAsyncDeviceStreamHandler* handler);
