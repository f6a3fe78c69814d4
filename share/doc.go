// Package share passes record batches between processes of one machine without copying them.
//
//	shared, err := share.Share(ctx, batch)    // in the owner
//	ticket := shared.Ticket()                 // a few hundred bytes, to be sent to the other process by any means
//
//	batch, err := share.Open(ctx, ticket)     // in another process, the opener
//	defer batch.Release()                     // tells the owner
//
// # Memory
//
// Memory of a GPU is shared by its CUDA IPC handles: it must be of cudaalloc's [cudaalloc.Device.Shareable], or of
// a library that allocates by cuMemAlloc. Host memory is shared as files without a name (memfd): it must be of an
// [Allocator]. Copy any other batch there first, with [cdevice.RecordBatch.CopyTo] or
// [cdevice.RecordBatch.CopyToHost]; this package copies nothing.
//
// The owner ([WithPinnedMemory]) and each opener ([WithPinnedMapping]) can page-lock host memory, each for itself. Tickets do
// not depend on it: a process without a driver opens such memory as the CPU's.
//
// An opener maps whole allocations. Its mapping of host memory is read-only. Memory of a GPU has no such protection: an
// opener must not write it, since arrays are immutable.
//
// # Ownership
//
// The owner retains the batch until its ticket is closed ([Shared.Close]) or was opened as often as [WithOpeners] allows, and
// every opener has released its batch. Each opener is connected to the owner by a socket, which the system closes when a process
// dies: a killed opener retains nothing. An opener whose owner dies keeps host memory; the contents of memory of a GPU are
// undefined from then on ([WithOwnerGone]).
//
// # Trust
//
// Only processes of the owner's user can open a ticket. The owner accepts only tickets that it has issued, unchanged, and the
// opener touches no memory before. An opener trusts the owner as it trusts the producer of a C struct:
// [cdevice.RecordBatch.ValidateFull] checks the contents of the buffers.
//
// The package works on Linux. On other systems Share, Open and NewAllocator return an error that wraps device.ErrNotSupported and
// names the system.
package share
