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
 */
struct cdevice_v0_block {
  int64_t live;                       /* structs of the tree that are not released; atomic */
  uint64_t handle;                    /* word of internal/handle that the last release gives back, or 0 */
  struct cdevice_v0_exports* exports; /* those that the block belongs to, or NULL; then handle is not used */
  const void* no_buffer;              /* what buffers of a record batch's root points to: a NULL bitmap */
};

/* A bit of handle, which no word has: the block is none of the trees that are counted. */
#define CDEVICE_V0_UNCOUNTED (1ULL << 63)
/* Another one: the block is not freed with its last struct. Go has it. */
#define CDEVICE_V0_KEPT (1ULL << 61)

/* Allocates a block of size bytes, header included, or returns NULL. kind is the count that it
 * belongs to: CDEVICE_V0_TREES of structs with a handle, CDEVICE_V0_OTHERS of structs without one.
 * handle is set to a small number, of the thread, until the caller sets it. */
struct cdevice_v0_block* cdevice_v0_block_new(size_t size, int kind);

/* Frees a block of CDEVICE_V0_TREES, whose handle is the caller's. */
void cdevice_v0_tree_free(uint64_t* block);

/* Frees a block that Go has. */
void cdevice_v0_block_free(uint64_t* block);

/* Go: ends the handle. */
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
