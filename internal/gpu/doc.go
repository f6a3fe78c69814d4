// Package gpu is the machinery below package cudaalloc: an open GPU with its streams, events, memory and
// deferred frees. Its functions take the driver's handles of streams and events, and contexts that are not
// nil; cudaalloc has checked the arguments of the program and found the GPU that a stream is of.
//
//	[Platform]      the open GPUs of one driver
//	[GPU]           one of them; copies between them
//	[Heap]          memory: allocating, freeing, caches, limits, page-locking, memory of other processes
//	[Streams]       streams that copies use again, and those that may be capturing
//	[Events]        events that are used again, and held by several parties
//	[Handle]        a stream or an event that is owned or borrowed, and that waits keep alive
//	[Deferred]      calls functions and frees memory after pending work
//	[Synchronizer]  synchronises the context, unless that would invalidate a capture
//	[Staging]       page-locked memory that copies of plain memory go through
//
// Each has a state and a lock of its own. None holds its lock while it calls another one, except
// for those that are named in its comment.
package gpu
