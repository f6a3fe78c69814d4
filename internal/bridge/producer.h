/* The structs of producers that we export. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../abi/abi.h"

/* A consumer may call request or cancel after the stream has ended, on a thread that slept for any
 * time before the call. So the address of a producer is never used again, and stays valid as long as
 * the process lives: it holds a struct whose callbacks do nothing.
 *
 * Structs are taken one after the other from chunks of address space. Once all structs of a chunk
 * have ended, a mapping of dead structs, the same read-only memory for all chunks, takes its place,
 * and the memory of the chunk goes back to the system. */

/* Takes a struct, and allocates size bytes for its additional_metadata; it sets no other field.
 * Returns NULL where there is no memory. */
struct ArrowAsyncProducer* cdevice_v0_producer_new(size_t size);
/* Frees the metadata; the callbacks find no handle in the struct from now on. */
void cdevice_v0_producer_end(struct ArrowAsyncProducer* producer);

/* Chunks that have memory of their own, and chunks that dead structs have taken the place of. */
int64_t cdevice_v0_producer_chunks(void);
int64_t cdevice_v0_producer_dead_chunks(void);
/* How many structs a chunk has. */
int64_t cdevice_v0_producer_chunk_size(void);
/* Sets how many dead chunks there may be, and returns how many before; beyond, chunks are kept. */
int64_t cdevice_v0_producer_limit_dead(int64_t limit);

void cdevice_v0_producer_request(struct ArrowAsyncProducer* producer, int64_t n);
void cdevice_v0_producer_cancel(struct ArrowAsyncProducer* producer);
