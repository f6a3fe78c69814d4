package hostpinned

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Registration is existing host memory that is page-locked until [Registration.Unregister].
type Registration struct {
	gpu  *cudaalloc.Device
	ptr  device.Ptr
	size int64

	mu   sync.Mutex
	done bool
	pins runtime.Pinner // b may be of the Go heap
}

// RegisterOption configures [Register].
type RegisterOption func(*registerOptions)

type registerOptions struct{ readOnly bool }

// WithReadOnly registers memory that must not be written, such as a file mapped with PROT_READ.
// The GPU can only copy from it.
func WithReadOnly() RegisterOption { return func(o *registerOptions) { o.readOnly = true } }

// Register page-locks b, for every GPU of the process, until Unregister. The system
// locks whole pages: memory that shares a page with other registered memory is
// refused (cudaalloc.HostMemoryAlreadyRegistered). The registration borrows b, which must stay
// mapped until Unregister.
func Register(gpu *cudaalloc.Device, b []byte, opts ...RegisterOption) (*Registration, error) {
	if gpu == nil {
		return nil, argument.Nil("hostpinned: Register", "gpu", "a GPU")
	}
	if err := argument.Options("hostpinned: Register", opts); err != nil {
		return nil, err
	}
	var o registerOptions
	for _, opt := range opts {
		opt(&o)
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("hostpinned: Register: b is empty, want memory: %w", arrow.ErrInvalid)
	}
	r := &Registration{gpu: gpu, size: int64(len(b))}
	first := unsafe.SliceData(b)
	r.pins.Pin(first)
	live.Store(r, nil)
	r.ptr = device.Ptr(uintptr(unsafe.Pointer(first)))
	if err := core.Of(gpu).Heap.Register(r.ptr, r.size, o.readOnly); err != nil {
		r.end()
		return nil, err
	}
	return r, nil
}

// live keeps registrations reachable: one that is forgotten keeps its memory locked, and
// the Go runtime would end a process whose pinner is collected while it pins.
var live sync.Map

func (r *Registration) end() {
	r.pins.Unpin()
	live.Delete(r)
}

// Unregister ends the registration, after all work already enqueued on the GPU. ctx ends
// that wait with an error. After an error the memory stays registered, and Unregister may be
// called again; once it has succeeded, another call is an error.
func (r *Registration) Unregister(ctx context.Context) error {
	if err := argument.Context("hostpinned: Unregister", ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return errUnregistered
	}
	if err := core.Of(r.gpu).Unregister(ctx, r.ptr); err != nil {
		return err
	}
	r.done = true
	r.end()
	return nil
}

var errUnregistered = errors.New("hostpinned: unregistered twice")

// Size returns the size of the registered memory in bytes.
func (r *Registration) Size() int64 { return r.size }

// Ptr returns the address of the registered memory, for the host and for every GPU.
func (r *Registration) Ptr() device.Ptr { return r.ptr }
