// Package share passes record batches between processes of one machine without copying them.
//
//	shared, err := share.Share(ctx, batch)    // in the owner
//	ticket := shared.Ticket()                 // some hundred bytes, which go to another process any way
//
//	batch, err := share.Open(ctx, ticket)     // in another process, the opener
//	defer batch.Release()                     // tells the owner
//
// # Memory
//
// Memory of a GPU is shared by its CUDA IPC handles: it must be of cudaalloc's [cudaalloc.Device.Shareable], or of
// a library that allocates by cuMemAlloc. Host memory is shared as files without a name (memfd): it must be of an
// [Allocator]. Any other batch is copied there first, with [cdevice.RecordBatch.CopyTo] or
// [cdevice.RecordBatch.CopyToHost]; nothing here copies.
//
// Host memory can be page-locked, by the owner ([WithPinnedMemory]) and by each opener ([WithPinnedMapping]), for
// itself: a ticket says nothing of it, and a process without a driver opens such memory as the CPU's.
//
// An opener maps whole allocations. It reads host memory, and cannot write it; it can write memory of a GPU, which
// has no such protection, and must not, since arrays are immutable.
//
// # Ownership
//
// The owner holds the batch until its ticket can be opened no more ([Shared.Close], or as often as [WithOpeners]
// allows) and every batch that was opened has been released. Openers are connected to the owner by a socket that
// the system closes when one of them dies: a killed opener holds nothing. An opener whose owner dies keeps its host
// memory; of memory of a GPU the contents are undefined from then on ([WithOwnerGone]).
//
// # Trust
//
// A ticket can be opened by processes of the owner's user only, and as often as the owner allows. The owner accepts
// only tickets that it has issued, unchanged; before that the opener touches no memory. An opener trusts the owner as
// it trusts the producer of a C struct: [cdevice.RecordBatch.ValidateFull] checks what the buffers hold.
//
// The package works on Linux. On other systems its functions return an error that wraps device.ErrNotSupported.
package share
