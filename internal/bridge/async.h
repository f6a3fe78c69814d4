/* The callbacks of the asynchronous device stream interface: those of handlers,
 * producers (producer.h) and tasks that we export, whose private_data is a word of internal/handle,
 * and calls of structs that another library exported. Structs are passed as words; see
 * bridge.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../abi/abi.h"

int cdevice_v0_handler_on_schema(struct ArrowAsyncDeviceStreamHandler* handler, struct ArrowSchema* schema);
int cdevice_v0_handler_on_next_task(struct ArrowAsyncDeviceStreamHandler* handler, struct ArrowAsyncTask* task,
                                    const char* metadata);
void cdevice_v0_handler_on_error(struct ArrowAsyncDeviceStreamHandler* handler, int code, const char* message,
                                 const char* metadata);
void cdevice_v0_handler_release(struct ArrowAsyncDeviceStreamHandler* handler);

int cdevice_v0_task_extract_data(struct ArrowAsyncTask* task, struct ArrowDeviceArray* out);

int cdevice_v0_call_on_schema(uint64_t* handler, uint64_t* schema);
int cdevice_v0_call_on_next_task(uint64_t* handler, uint64_t* task, const char* metadata);
void cdevice_v0_call_on_error(uint64_t* handler, int code, const char* message, const char* metadata);
void cdevice_v0_call_handler_release(uint64_t* handler);
int cdevice_v0_call_extract_data(uint64_t* task, uint64_t* out);

/* handle is the consumer's that calls: cdevice_v0_calling reports whether this thread is in
 * one of its calls of a producer just now. */
void cdevice_v0_call_request(uintptr_t producer, int64_t n, uint64_t handle);
void cdevice_v0_call_cancel(uintptr_t producer, uint64_t handle);
int cdevice_v0_calling(uint64_t handle);
