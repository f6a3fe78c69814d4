/* The exports of one owner of memory: what C keeps so that an export need not call C, and a
 * release need not call Go. */
#pragma once

#include "bridge.h"

/* It heads one allocation with the block of the owner's first export, which is the owner's spare
 * block afterwards: an export takes it, in Go, and the release of its last struct gives it back. A
 * tree that is exported while the spare block is taken, or that is larger, gets a block of its own,
 * which its release frees.
 *
 * The memory of the owner ends when the Go side and all trees are gone. refs is 1 for each block of
 * its own, and 1 for both the Go side and the spare block: of these two, the one that ends later
 * drops it, which the bits of spare decide. The one that drops the last ends the owner.
 *
 * 64 bytes at an address that 64 divides, and so is the block behind it: threads that export
 * different owners share no cache line. */
struct cdevice_v0_exports {
  uint64_t spare;  /* the bits below, and TAKE for each tree in the block that Go began and that C ends; atomic */
  int64_t refs;    /* atomic */
  uint64_t handle; /* of the Go owner, and CDEVICE_V0_KEPT; a small number of the thread until Go sets it */
  uint64_t size;   /* of the spare block, header included */
  void* allocation;
  uint64_t go[3]; /* what Go keeps here; 0 at first */
};

#define CDEVICE_V0_TAKEN 1
#define CDEVICE_V0_CLOSED 2 /* the Go side is gone */
#define CDEVICE_V0_LISTED 4 /* Go took the block, and lists the exports */
#define CDEVICE_V0_TAKE 8

/* Allocates exports, with a spare block of size bytes, which is taken. Returns NULL without memory. */
struct cdevice_v0_exports* cdevice_v0_exports_new(size_t size);
/* Allocates a block of its own. The caller holds the owner. */
struct cdevice_v0_block* cdevice_v0_exports_block(uint64_t* exports, size_t size);
void cdevice_v0_exports_free(uint64_t* exports);

/* Ends a block of exports whose structs are all released. */
void cdevice_v0_exports_give_back(struct cdevice_v0_block* block);
/* Counts the end of a tree of exports, which it may free. */
void cdevice_v0_exports_left(uint64_t* exports, int free_them);

/* Under AddressSanitizer, a spare block that is not taken cannot be accessed. */
void cdevice_v0_exports_poison(uint64_t* exports);
void cdevice_v0_exports_unpoison(uint64_t* exports);
