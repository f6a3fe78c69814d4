package cuda

// #include "driver.h"
import "C"

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/arrowdevice/arrowdevice/device"
)

// Code is a CUresult. It is an error, so that errors.Is can compare with it.
type Code int

// The codes that callers distinguish.
const (
	InvalidValue                Code = 1
	OutOfMemory                 Code = 2
	NotInitialized              Code = 3
	Deinitialized               Code = 4
	StubLibrary                 Code = 34
	NoDevice                    Code = 100
	InvalidDevice               Code = 101
	InvalidContext              Code = 201
	InvalidHandle               Code = 400
	NotReady                    Code = 600
	PeerAccessAlreadyEnabled    Code = 704
	HostMemoryAlreadyRegistered Code = 712
	HostMemoryNotRegistered     Code = 713
	NotSupported                Code = 801
	SystemDriverMismatch        Code = 803
	CompatNotSupported          Code = 804

	missingSymbol Code = C.CDEVICE_V0_CUDA_MISSING
)

// The codes after which a context or the process runs no more work.
const (
	ECCUncorrectable     Code = 214
	NVLinkUncorrectable  Code = 220
	Contained            Code = 226
	IllegalAddress       Code = 700
	LaunchTimeout        Code = 702
	ContextIsDestroyed   Code = 709
	Assert               Code = 710
	HardwareStackError   Code = 714
	IllegalInstruction   Code = 715
	MisalignedAddress    Code = 716
	InvalidAddressSpace  Code = 717
	InvalidPC            Code = 718
	LaunchFailed         Code = 719
	TensorMemoryLeak     Code = 721
	MPSClientTerminated  Code = 810
	ExternalDeviceFailed Code = 911
)

// The codes of stream capture.
const (
	StreamCaptureUnsupported Code = 900
	StreamCaptureInvalidated Code = 901
	CapturedEvent            Code = 907
	StreamCaptureWrongThread Code = 908
)

// Capture reports whether a call failed because of a stream capture: the same call
// may succeed after the capture has ended.
func (c Code) Capture() bool {
	return StreamCaptureUnsupported <= c && c <= StreamCaptureWrongThread
}

// ContextGone reports whether a context, or the process, runs nothing any more after
// this error: the driver ends, the context was destroyed, or the manual states that the
// context cannot be used, or that the process must be relaunched. After any other error
// pending work may still run.
func (c Code) ContextGone() bool {
	switch c {
	case Deinitialized, InvalidContext, ContextIsDestroyed,
		ECCUncorrectable, NVLinkUncorrectable, Contained,
		IllegalAddress, LaunchTimeout, Assert, HardwareStackError, IllegalInstruction,
		MisalignedAddress, InvalidAddressSpace, InvalidPC, LaunchFailed, TensorMemoryLeak,
		MPSClientTerminated, ExternalDeviceFailed:
		return true
	}
	return false
}

// Is makes errors.Is find syscall.ENOMEM in OutOfMemory.
func (c Code) Is(target error) bool {
	return c == OutOfMemory && target == syscall.ENOMEM
}

// Error names the code without a driver's help; see [Error] for its name and text.
func (c Code) Error() string { return fmt.Sprintf("CUDA error %d", int(c)) }

// notSupported are the codes for a call that this machine or driver does not support: trying again
// does not help.
func (c Code) notSupported() bool {
	switch c {
	case missingSymbol, StubLibrary, NoDevice, InvalidDevice, NotSupported, SystemDriverMismatch, CompatNotSupported:
		return true
	}
	return false
}

// result is the outcome of a call.
type result = C.cdevice_v0_cuda_result

// Error is a call of the driver that failed.
type Error struct {
	Call   string // the function, as the manual names it: "cuMemAlloc"
	Args   []any  // only the relevant ones
	Device string // "cuda:0"; empty for calls that concern none
	Code   Code
	Name   string // the driver's name of the code: "CUDA_ERROR_OUT_OF_MEMORY"
	Text   string // the driver's text: "out of memory"
}

// Error prints "cuda: cuMemAlloc(67108864) on cuda:0: CUDA_ERROR_OUT_OF_MEMORY: out of memory".
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cuda: %s(", e.Call)
	for i, arg := range e.Args {
		if i > 0 {
			b.WriteString(", ")
		}
		if p, ok := arg.(uintptr); ok {
			fmt.Fprintf(&b, "%#x", p)
		} else {
			fmt.Fprint(&b, arg)
		}
	}
	b.WriteString(")")
	if e.Device != "" {
		fmt.Fprintf(&b, " on %s", e.Device)
	}
	fmt.Fprintf(&b, ": %s: %s", e.Name, e.Text)
	return b.String()
}

// Unwrap gives the code, and device.ErrNotSupported where trying again is in vain.
func (e *Error) Unwrap() []error {
	if e.Code.notSupported() {
		return []error{e.Code, device.ErrNotSupported}
	}
	return []error{e.Code}
}

// Public makes of a failed call the error that users of this module see. Package cudaalloc
// sets it before any driver is loaded.
var Public = func(e *Error) error { return e }

// PublicCode is [Public] for a code that no call returned.
var PublicCode = func(c Code) error { return c }

// errorOf returns the error of a call, nil if it has succeeded. The other functions name arguments of the call, which
// are boxed only for an error: a call that succeeds allocates nothing.
func errorOf(d *Device, r result) error {
	if r.code == 0 {
		return nil
	}
	return d.fail(r)
}

func errorOf1[A0 any](d *Device, r result, a A0) error {
	if r.code == 0 {
		return nil
	}
	return d.fail(r, a)
}

func errorOf2[A0, A1 any](d *Device, r result, a A0, b A1) error {
	if r.code == 0 {
		return nil
	}
	return d.fail(r, a, b)
}

func errorOf3[A0, A1, A2 any](d *Device, r result, a A0, b A1, c A2) error {
	if r.code == 0 {
		return nil
	}
	return d.fail(r, a, b, c)
}

// fail makes the error of a result whose code is not zero.
func (d *Driver) fail(on string, r result, args ...any) error {
	function := C.cdevice_v0_cuda_functions[r.call]
	e := &Error{Call: C.GoString(function.name), Args: args, Device: on, Code: Code(r.code)}
	if strings.HasPrefix(e.Call, "cuCtx") && e.Call != "cuCtxSynchronize" && e.Call != "cuCtxEnablePeerAccess" {
		e.Args = nil // the arguments are of another call, which this one prepared
	}
	if e.Code == missingSymbol {
		e.Name, e.Text = "missing symbol", fmt.Sprintf("%s has no %s: the driver is too old", d.path, C.GoString(function.symbol))
		return Public(e)
	}
	e.Name, e.Text = "unknown error", e.Code.Error()
	if name := C.cdevice_v0_cuda_error_name(d.table, C.int(r.code)); name != nil {
		e.Name = C.GoString(name)
	}
	if text := C.cdevice_v0_cuda_error_text(d.table, C.int(r.code)); text != nil {
		e.Text = C.GoString(text)
	}
	return Public(e)
}
