/* PyCapsules with the structs of the Arrow PyCapsule interface, and with DLPack tensors.
 *
 * The destructors are C, and not ctypes callbacks, because Python also destroys
 * capsules while an exception is on its way, when no Python code may run.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Returns size zeroed bytes for a struct that a capsule will own, or NULL. */
void* golib_new_struct(size_t size);
/* Frees one that no capsule owns. */
void golib_free_struct(void* p);
/* How many there are. */
int64_t golib_struct_count(void);

/* Destructors for PyCapsule_New: release the struct, unless a consumer moved it
 * out or it was never filled, and free it. */
void golib_destroy_schema_capsule(void* capsule);
void golib_destroy_array_capsule(void* capsule);
void golib_destroy_device_array_capsule(void* capsule);
void golib_destroy_stream_capsule(void* capsule);

/* Destructors of capsules with a DLPack tensor: call its deleter, unless a consumer has
 * renamed the capsule. */
void golib_destroy_dltensor_capsule(void* capsule);
void golib_destroy_dltensor_versioned_capsule(void* capsule);
