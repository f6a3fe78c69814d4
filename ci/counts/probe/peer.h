/* Another library of the interface, which costs next to nothing: a consumer that releases structs and reads streams,
 * and a producer of the same array again and again. */
#pragma once

#include "../../../internal/abi/abi.h"

/* Calls the release callback of the struct, whose fields are passed as numbers: cgo would search for pointers in it. */
void peer_release(uintptr_t array);
void peer_release_schema(uintptr_t schema);

/* Reads a stream to its end, releases each array before the next one, and the stream. Returns how many there were, or
 * -1. */
int64_t peer_read(uintptr_t stream);
int64_t peer_read_plain(uintptr_t stream);

/* Makes the struct one of the producer: what it refers to is borrowed, and its release only marks it as released. */
void peer_lend(uintptr_t array);

/* Fills *out with a stream of n copies of the array, which was lent. The stream takes the schema. Returns 0 or ENOMEM.
 */
int peer_stream(uintptr_t array, uintptr_t schema, int64_t n, uintptr_t out);
