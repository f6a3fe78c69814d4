/* The C half of what this library exports: blocks of C memory that hold a whole
 * tree of ArrowArray or ArrowSchema structs, and the release callbacks of those
 * structs. Every symbol carries the prefix cdevice_v0_, because two major
 * versions of this library may be linked into one program.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../abi/abi.h"

/* Heads every block. The structs of a tree, and all that their pointers reach
 * except the data buffers, follow it in the same allocation. private_data of
 * each struct points here, also after a consumer moved the struct away.
 *
 * The release of the last struct frees the block, and gives the handle back.
 */
struct cdevice_v0_block {
  int64_t live;             /* structs of the tree that are not released; atomic */
  uint64_t handle;          /* word of internal/handle that the last release gives back, or 0 */
  const void* no_buffer[2]; /* the buffers of a record batch: a NULL bitmap; the second aligns what follows */
};

/* Allocates a block of size bytes, header included, or returns NULL. Go counts it. */
struct cdevice_v0_block* cdevice_v0_block_new(size_t size);

/* Frees a block whose structs no consumer has. */
void cdevice_v0_block_free(uint64_t* block);

/* Frees the block of an object of another kind than arrays, and counts it. */
void cdevice_v0_block_end(struct cdevice_v0_block* block);

/* Returns how many blocks of schemas and of other objects have been freed here. */
int64_t cdevice_v0_blocks_freed(void);

/* Go: end the handle, of an exported tree of arrays and of anything else. */
void cdevice_v0_go_export_ended(uint64_t handle);
void cdevice_v0_go_release(uint64_t handle);

void cdevice_v0_release_array(struct ArrowArray* array);
void cdevice_v0_release_schema(struct ArrowSchema* schema);

/* Call the release callback of a struct that another library exported. The structs
 * are passed as words: for a pointer to a type with pointers in it, cgo would
 * search all of the Go object that the struct is a part of for Go pointers, and
 * panic if the struct stands beside one. */
void cdevice_v0_call_array_release(uint64_t* array);
void cdevice_v0_call_schema_release(uint64_t* schema);
/* Calls the release callback with a copy of the struct, which the caller does not use again. */
void cdevice_v0_release_moved(const uint64_t* array);

/* What a NULL buffer of length zero becomes on the CPU: some consumers reject NULL. */
extern const uint64_t cdevice_v0_zeros[8];

/* Python's lock, where Python is in this process; nothing otherwise. The state that gil_ensure sets goes
 * to gil_release, on the same thread. gil_ensure fails while Python is finalizing. */
int cdevice_v0_gil_ensure(int* state);
void cdevice_v0_gil_release(int state);
