//go:build gorgonia

package gorgonia

import (
	"errors"
	"fmt"
	"runtime"

	"gorgonia.org/cu"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

var (
	// ErrNotPrimary is returned for a context that is not the primary context of its GPU.
	ErrNotPrimary = errors.New("not the primary context")
	// ErrOtherDriver is returned if cudaalloc loaded another driver than the program is linked to:
	// handles of one are invalid in the other.
	ErrOtherDriver = errors.New("another driver than the one that gorgonia.org/cu is linked to")
)

// Open opens the GPU as cudaalloc.Open does, and checks that cu uses the same
// driver: where an option or an environment variable names another one, the error is
// [ErrOtherDriver].
func Open(dev cu.Device, opts ...cudaalloc.Option) (*cudaalloc.Device, error) {
	gpu, err := cudaalloc.Open(int64(dev), opts...)
	if err != nil {
		return nil, err
	}
	same, err := isPrimary(CUContext(gpu), dev)
	if err != nil {
		return nil, err
	}
	if !same {
		return nil, fmt.Errorf("gorgonia: open %s: the driver of cudaalloc is %w", gpu.ID(), ErrOtherDriver)
	}
	return gpu, nil
}

// Device opens the GPU whose primary context ctx is. Any other context, such as one
// from cu.NewContext or cu.Device.MakeContext, is refused with [ErrNotPrimary], and
// nothing is opened then. ctx stays the caller's.
func Device(ctx cu.CUContext, opts ...cudaalloc.Option) (*cudaalloc.Device, error) {
	var dev cu.Device
	err := in(ctx, func() (err error) {
		if dev, err = cu.CurrentDevice(); err != nil {
			err = failed("cuCtxGetDevice", err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	primary, err := isPrimary(ctx, dev)
	if err != nil {
		return nil, err
	}
	if !primary {
		return nil, fmt.Errorf("gorgonia: context %s of cuda:%d is %w, in which this module and the CUDA runtime work; see Open and CUContext", ctx, dev, ErrNotPrimary)
	}
	return Open(dev, opts...)
}

// CUContext borrows the primary context of the GPU for functions of cu. It is valid for
// as long as the process lives, and must not be destroyed. A nil dev panics.
func CUContext(dev *cudaalloc.Device) cu.CUContext {
	if dev == nil {
		panic(argument.Nil("gorgonia: CUContext", "dev", "a GPU"))
	}
	return handleOf[cu.CUContext](dev.Context())
}

// Do calls f with the primary context of the GPU current on the calling thread, as
// functions of cu need it, and leaves the thread as it was. f must not change the
// thread's stack of contexts, and must do its work on this goroutine. Do returns the error of f.
func Do(dev *cudaalloc.Device, f func() error) error {
	if dev == nil {
		return argument.Nil("gorgonia: Do", "dev", "a GPU")
	}
	if f == nil {
		return argument.Nil("gorgonia: Do", "f", "a function")
	}
	return in(CUContext(dev), f)
}

func in(ctx cu.CUContext, f func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.PushCurrentCtx(ctx); err != nil {
		return failed("cuCtxPushCurrent", err)
	}
	defer func() {
		if _, popped := cu.PopCurrentCtx(); popped != nil {
			err = errors.Join(err, failed("cuCtxPopCurrent", popped))
		}
	}()
	return f()
}

// isPrimary asks the driver that cu is linked to. A primary context that is not there
// yet is not made for the question.
func isPrimary(ctx cu.CUContext, dev cu.Device) (bool, error) {
	_, active, err := dev.PrimaryCtxState()
	if err != nil {
		return false, failed("cuDevicePrimaryCtxGetState", err)
	}
	if active == 0 {
		return false, nil
	}
	primary, err := dev.RetainPrimaryCtx()
	if err != nil {
		return false, failed("cuDevicePrimaryCtxRetain", err)
	}
	if err := dev.ReleasePrimaryCtx(); err != nil {
		return false, failed("cuDevicePrimaryCtxRelease", err)
	}
	return ctx == primary, nil
}

func failed(call string, err error) error { return fmt.Errorf("gorgonia: %s: %w", call, err) }
