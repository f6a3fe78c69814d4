/* The callbacks of an ArrowDeviceArrayStream and of a plain ArrowArrayStream: those of
 * streams that we export, whose private_data is a word of internal/handle, and calls of
 * those that another library exported. Structs are passed as words; see bridge.h. */
#pragma once

#include <stdint.h>

#include "../abi/abi.h"

int cdevice_v0_stream_get_schema(struct ArrowDeviceArrayStream* stream, struct ArrowSchema* out);
int cdevice_v0_stream_get_next(struct ArrowDeviceArrayStream* stream, struct ArrowDeviceArray* out);
const char* cdevice_v0_stream_get_last_error(struct ArrowDeviceArrayStream* stream);
void cdevice_v0_stream_release(struct ArrowDeviceArrayStream* stream);

int cdevice_v0_call_stream_get_schema(uint64_t* stream, uint64_t* out);
int cdevice_v0_call_stream_get_next(uint64_t* stream, uint64_t* out);
const char* cdevice_v0_call_stream_get_last_error(uint64_t* stream);
void cdevice_v0_call_stream_release(uint64_t* stream);

int cdevice_v0_plain_stream_get_schema(struct ArrowArrayStream* stream, struct ArrowSchema* out);
int cdevice_v0_plain_stream_get_next(struct ArrowArrayStream* stream, struct ArrowArray* out);
const char* cdevice_v0_plain_stream_get_last_error(struct ArrowArrayStream* stream);
void cdevice_v0_plain_stream_release(struct ArrowArrayStream* stream);

int cdevice_v0_call_plain_stream_get_schema(uint64_t* stream, uint64_t* out);
int cdevice_v0_call_plain_stream_get_next(uint64_t* stream, uint64_t* out);
const char* cdevice_v0_call_plain_stream_get_last_error(uint64_t* stream);
void cdevice_v0_call_plain_stream_release(uint64_t* stream);
