//go:build gorgonia

package gorgonia

import (
	"unsafe"

	"gorgonia.org/cu"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// handle is a type of cu that is a struct of one handle of the driver.
//
// The field is not exported, and only cu.Stream has a method that returns it, with a
// type of cgo's that cannot be named here; no function makes one of an existing
// handle. So the struct is converted to the word that it holds. That is sound for
// the garbage collector: to Go, handles are pointers to incomplete C structs, which
// it neither follows nor checks. The compiler refuses a cu whose structs are of
// another size, and the tests compare with cu's own text of its handles.
type handle interface {
	cu.CUContext | cu.Stream | cu.Event
}

type word = [unsafe.Sizeof(uintptr(0))]byte

var (
	_ word = [unsafe.Sizeof(cu.CUContext{})]byte{}
	_ word = [unsafe.Sizeof(cu.Stream{})]byte{}
	_ word = [unsafe.Sizeof(cu.Event{})]byte{}
)

func wordOf[H handle](h H) uintptr { return *(*uintptr)(unsafe.Pointer(&h)) }

func handleOf[H handle](word uintptr) (h H) {
	*(*uintptr)(unsafe.Pointer(&h)) = word
	return h
}

// Stream borrows a stream that the program made with cu in the context of dev, and that
// stays the program's: closing the result leaves it alone. cu.NoStream is the legacy
// default stream.
func Stream(dev *cudaalloc.Device, s cu.Stream) (device.Stream, error) {
	if dev == nil {
		return nil, argument.Nil("gorgonia: Stream", "dev", "a GPU")
	}
	return dev.WrapStream(wordOf(s))
}

// CUStream borrows s for functions of cu, until s is closed; it must not be destroyed
// through the result. nil is the legacy default stream.
func CUStream(s device.Stream) cu.Stream {
	if s == nil {
		return cu.NoStream
	}
	return handleOf[cu.Stream](s.Handle())
}

// Event borrows an event that the program made with cu in the context of dev, and that
// stays the program's: it must outlive the result, and every batch that has the result
// for its event. The zero cu.Event is an error.
func Event(dev *cudaalloc.Device, e cu.Event) (device.Event, error) {
	if dev == nil {
		return nil, argument.Nil("gorgonia: Event", "dev", "a GPU")
	}
	return dev.WrapEvent(wordOf(e))
}

// CUEvent borrows e for functions of cu, until e is closed; it must not be destroyed
// through the result. Events of this module have no timing: cu.Event.Elapsed is an
// error. nil is the zero cu.Event.
func CUEvent(e device.Event) cu.Event {
	if e == nil {
		return cu.Event{}
	}
	return handleOf[cu.Event](e.Handle())
}

// Ptr converts p to an address of this module. The owner of the memory does not change.
func Ptr(p cu.DevicePtr) device.Ptr { return device.Ptr(p) }

// CUPtr converts p to an address for functions of cu. The owner of the memory does not change.
func CUPtr(p device.Ptr) cu.DevicePtr { return cu.DevicePtr(p) }
