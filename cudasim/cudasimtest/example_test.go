package cudasimtest_test

import (
	"context"
	"testing"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/cudasim/cudasimtest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// clear is the code under test: it fills memory of a GPU on a stream, and frees it behind that.
func clear(ctx context.Context, bytes int64) error {
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		return err
	}
	s, err := gpu.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := gpu.Allocate(ctx, bytes, s)
	if err != nil {
		return err
	}
	if err := gpu.Memset(m.Ptr(), 0, bytes, s); err != nil {
		return err
	}
	return m.Free(s) // m.Free(nil), or none, would fail the test
}

// A test of code that opens a GPU itself.
func ExampleStart() {
	_ = func(t *testing.T) {
		sim := cudasimtest.Start(t)
		if err := clear(t.Context(), 1<<20); err != nil {
			t.Fatal(err)
		}
		if sim.Calls("cuMemsetD8Async") != 1 {
			t.Error("the memory is not cleared")
		}
	}
}

// Two GPUs that do nothing before the program waits for it.
func ExampleWithOptions() {
	_ = func(t *testing.T) {
		cudasimtest.Start(t, cudasimtest.WithOptions(cudasim.Options{Devices: 2, Lazy: true}))
		second, err := device.Open(device.ID{Type: device.CUDA, Ordinal: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(second.ID())
	}
}
