package device

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/memcopy"
)

// CPUDevice returns the CPU as a device. Its streams do their work at once, so its
// events are always complete, and exported arrays carry no event. It has every optional
// interface but [Prober].
func CPUDevice() Device { return host{} }

var _ interface {
	Device
	Stager
	Memsetter
	CopyStreamer
} = host{}

type host struct{}

// openHost accepts 0 as well as NoOrdinal: some producers number the CPU.
func openHost(ordinal int64) (Device, error) {
	if ordinal != NoOrdinal && ordinal != 0 {
		return nil, fmt.Errorf("there is one cpu, its id is %d: %w", NoOrdinal, ErrNotSupported)
	}
	return CPUDevice(), nil
}

func (host) ID() ID              { return ID{Type: CPU, Ordinal: NoOrdinal} }
func (host) Name() string        { return "cpu" }
func (host) CPUAccessible() bool { return true }

const (
	hostAlignment = 64
	hostAddresses = 1 << 47 // more than a process can address
)

func (host) Allocate(ctx context.Context, size int64, s Stream) (Memory, error) {
	if err := checkHostStream(s); err != nil {
		return nil, err
	}
	if err := checkContext("allocate", ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("device: allocate %d bytes on cpu: %w", size, err)
	}
	if size < 0 {
		return nil, fmt.Errorf("device: allocate %d bytes on cpu: negative size", size)
	}
	if size > hostAddresses {
		return nil, fmt.Errorf("device: allocate %d bytes on cpu: more than can be addressed", size)
	}
	// Go memory does not move; the slice in hostMemory keeps it alive.
	buf := make([]byte, size+hostAlignment)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(buf))) % hostAlignment
	return &hostMemory{buf: buf[skip : int64(skip)+size]}, nil
}

func (h host) AllocateHost(ctx context.Context, size int64) (Memory, error) {
	return h.Allocate(ctx, size, nil)
}

func (host) Copy(ranges []Range, s Stream) error {
	if err := checkHostStream(s); err != nil {
		return err
	}
	for i, r := range ranges {
		if r.Size < 0 {
			return fmt.Errorf("device: copy on cpu: ranges[%d].Size = %d: negative size", i, r.Size)
		}
		_ = memcopy.Copy(uintptr(r.Dst), uintptr(r.Src), r.Size, nil)
	}
	return nil
}

func (h host) Upload(ctx context.Context, ranges []Range, s Stream) (Event, error) {
	if err := checkContext("upload", ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("device: upload to cpu: %w", err)
	}
	if err := h.Copy(ranges, s); err != nil {
		return nil, err
	}
	return hostEvent{}, nil
}

func (host) PageLocked(Ptr, int64) bool { return false } // it reads at once

func (host) Memset(p Ptr, value byte, size int64, s Stream) error {
	if err := checkHostStream(s); err != nil {
		return err
	}
	if size < 0 {
		return fmt.Errorf("device: memset on cpu: negative size %d", size)
	}
	b := hostBytes(p, size)
	for i := range b {
		b[i] = value
	}
	return nil
}

func (host) AfterWork(f func()) { callNow("AfterWork", f) }

func (host) CopyStream() (Stream, error)        { return hostStream{}, nil }
func (host) NewStream() (Stream, error)         { return hostStream{}, nil }
func (host) WrapStream(uintptr) (Stream, error) { return hostStream{}, nil }
func (host) NewEvent() (Event, error)           { return hostEvent{}, nil }
func (host) WrapEvent(uintptr) (Event, error)   { return hostEvent{}, nil }

func hostBytes(p Ptr, size int64) []byte {
	if size == 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), size)
}

type hostMemory struct {
	buf   []byte
	freed atomic.Bool
}

func (m *hostMemory) Ptr() Ptr    { return Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(m.buf)))) }
func (m *hostMemory) Size() int64 { return int64(len(m.buf)) }

func (m *hostMemory) Free(s Stream) error {
	if m.freed.Swap(true) {
		return errFreedTwice
	}
	return checkHostStream(s)
}

var (
	errFreedTwice = errors.New("device: memory on cpu freed twice")
	errNoStream   = errors.New("device: stream = nil, want a stream")
	errNoEvent    = errors.New("device: event = nil, want an event")
)

func (m *hostMemory) FreeAfter(Event) error { return m.Free(nil) }

type hostStream struct{}

func (hostStream) Handle() uintptr                       { return 0 }
func (hostStream) Device() Device                        { return CPUDevice() }
func (hostStream) Record(e Event) error                  { return checkHostEvent(e) }
func (hostStream) WaitEvent(e Event) error               { return checkHostEvent(e) }
func (hostStream) Synchronize(ctx context.Context) error { return checkContext("synchronize", ctx) }
func (hostStream) AfterWork(f func())                    { callNow("AfterWork", f) }
func (hostStream) Close() error                          { return nil }

// checkHostStream returns an error for a stream of another device: the CPU works at once,
// and not in the order of that stream.
func checkHostStream(s Stream) error {
	switch s.(type) {
	case nil, hostStream:
		return nil
	}
	if isNilPointer(s) {
		return errNoStream
	}
	of := s.Device()
	switch {
	case of == nil:
		return errors.New("device: stream of no device, want one of cpu")
	case of.ID().Type != CPU:
		return fmt.Errorf("device: stream of %s, want one of cpu", of.ID())
	}
	return nil
}

// checkHostEvent returns an error for an event of another device: the CPU's streams wait for nothing.
func checkHostEvent(e Event) error {
	switch {
	case e == nil || isNilPointer(e):
		return errNoEvent
	case e.Device() == nil:
		return errors.New("device: event of no device, want one of cpu")
	case e.Device().ID().Type != CPU:
		return fmt.Errorf("device: event of %s, want one of cpu", e.Device().ID())
	}
	return nil
}

// isNilPointer sees a nil pointer in an interface that is not nil.
func isNilPointer(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// checkContext returns an error for a context that is nil.
func checkContext(call string, ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("device: %s on cpu: ctx = nil, want a context", call)
	}
	return nil
}

// callNow calls f, which must not be nil: here as on devices that call it later.
func callNow(call string, f func()) {
	if f == nil {
		panic(fmt.Sprintf("device: %s on cpu: f = nil, want a function", call))
	}
	f()
}

type hostEvent struct{}

func (hostEvent) Handle() uintptr                       { return 0 }
func (hostEvent) Device() Device                        { return CPUDevice() }
func (hostEvent) Query() (bool, error)                  { return true, nil }
func (hostEvent) Synchronize(ctx context.Context) error { return checkContext("synchronize", ctx) }
func (hostEvent) OnComplete(f func())                   { callNow("OnComplete", f) }
func (hostEvent) Close() error                          { return nil }
