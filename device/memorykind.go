package device

import (
	"context"
	"fmt"
)

// MemoryKind is a kind of memory of one device. Two kinds may have the same [ID].
type MemoryKind int

const (
	OwnMemory       MemoryKind = iota // memory of the device itself
	ShareableMemory                   // memory of the device itself, each allocation of which other processes can open
	PinnedMemory                      // page-locked host memory that the device reads and writes
	ManagedMemory                     // memory that the driver moves between the device and the host
)

// String returns "own", "shareable", "pinned" or "managed".
func (k MemoryKind) String() string {
	switch k {
	case OwnMemory:
		return "own"
	case ShareableMemory:
		return "shareable"
	case PinnedMemory:
		return "pinned"
	case ManagedMemory:
		return "managed"
	}
	return fmt.Sprintf("memory_kind(%d)", int(k))
}

// MemoryKinds is an optional interface of a [Device] that has several kinds of memory. Each kind is a
// Device; all of them have the same streams and events.
type MemoryKinds interface {
	Device
	// MemoryKind returns the kind of memory that Allocate returns.
	MemoryKind() MemoryKind
	// WithMemory returns the Device for another kind of memory of the same device, or an error that
	// wraps [ErrNotSupported].
	WithMemory(kind MemoryKind) (Device, error)
}

// IPCHandle is what another process of this machine opens memory or an event by: a CUipcMemHandle or a
// CUipcEventHandle. Everyone who has it can open it, so it must be kept like a key.
type IPCHandle [64]byte

// ErrNotShareable is wrapped by the error of [Sharer.MemoryHandle] for memory that other processes cannot
// open.
var ErrNotShareable = fmt.Errorf("no other process can open it: %w", ErrNotSupported)

// Sharer is an optional interface of a [Device] whose memory and events other processes of the machine can
// open. Memory that it allocates can be opened if its kind is [ShareableMemory].
type Sharer interface {
	MemoryKinds
	// UUID returns the identity of the device, which is the same in all processes; ordinals differ. [UUIDs]
	// finds the device in another process.
	UUID() ([16]byte, error)
	// MemoryHandle returns the handle of the allocation that p is in, and where that is. The allocation must
	// live until each process that has opened it has closed it.
	MemoryHandle(p Ptr) (IPCHandle, Allocation, error)
	// OpenMemory maps the first size bytes of an allocation of another process. The caller frees the memory
	// as any other memory, which closes it. closed, unless it is nil, is called once when the driver has
	// closed it, as the functions of [Device.AfterWork] are; if OpenMemory returns an error, it is not called.
	OpenMemory(ctx context.Context, h IPCHandle, size int64, closed func()) (Memory, error)
	// NewSharedEvent returns an owned event that was never recorded, and its handle. It must stay open until
	// the processes that have opened it have closed theirs.
	NewSharedEvent() (Event, IPCHandle, error)
	// OpenEvent opens the event of another process. The caller closes it.
	OpenEvent(h IPCHandle) (Event, error)
}

// HostRegistrar is an optional interface of a [Device] that page-locks host memory that something else has
// allocated.
type HostRegistrar interface {
	MemoryKinds
	// RegisterMemory page-locks memory, which must stay mapped until it has ended. It ends as any other
	// memory: Free and FreeAfter unregister it. unregistered, unless it is nil, is called once when the
	// driver has done so, as the functions of [Device.AfterWork] are; if RegisterMemory returns an error, it
	// is not called. readOnly is for memory that must not be written, which needs RegistersReadOnly.
	RegisterMemory(p Ptr, size int64, readOnly bool, unregistered func()) (Memory, error)
	// RegistersReadOnly reports whether the device can page-lock memory that is mapped read-only.
	RegistersReadOnly() (bool, error)
}
