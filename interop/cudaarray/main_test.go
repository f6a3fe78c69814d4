package cudaarray_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
)

var background = context.Background()

// All tests together leave nothing behind. Memory of the example, which does not flush its GPU, is
// released after work, on a goroutine of the backend.
func TestMain(m *testing.M) {
	cudatest.WithoutDefault()
	code := goroutineleak.Run(m)
	ended := within.Becomes(20*time.Second, func() bool { return cdevice.ReadStats() == (cdevice.Stats{}) })
	if code == 0 && !ended {
		fmt.Fprintf(os.Stderr, "the tests left something unreleased: %+v\n", cdevice.ReadStats())
		code = 1
	}
	os.Exit(code)
}

// fromJSON builds an array of the host.
func fromJSON(t *testing.T, dt arrow.DataType, text string) arrow.Array {
	t.Helper()
	arr, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(text))
	require.NoError(t, err)
	t.Cleanup(arr.Release)
	return arr
}

// copied is a copy on a device that the test owns. It has an event.
func copied(t *testing.T, arr arrow.Array, dev device.Device, opts ...cdevice.CopyOption) *cdevice.Array {
	t.Helper()
	host, err := cdevice.WrapArray(arr, device.CPUDevice())
	require.NoError(t, err)
	defer host.Release()
	a, err := host.CopyTo(background, dev, opts...)
	require.NoError(t, err)
	t.Cleanup(a.Release)
	return a
}

// ready is copied without an event.
func ready(t *testing.T, arr arrow.Array, dev device.Device) *cdevice.Array {
	t.Helper()
	a := copied(t, arr, dev)
	require.NoError(t, a.Synchronize(background))
	return a
}

func onGPU(t *testing.T, m *cudatest.Machine, dt arrow.DataType, text string) *cdevice.Array {
	t.Helper()
	return ready(t, fromJSON(t, dt, text), m.GPUs[0])
}

// slice is a part of an array that the test owns.
func slice(t *testing.T, a *cdevice.Array, i, j int64) *cdevice.Array {
	t.Helper()
	part, err := a.Slice(i, j)
	require.NoError(t, err)
	t.Cleanup(part.Release)
	return part
}

// exported is an export that must succeed.
func exported(t *testing.T, a *cdevice.Array, opts ...cudaarray.ExportOption) cudaarray.Interface {
	t.Helper()
	i, err := cudaarray.Export(a, opts...)
	require.NoError(t, err)
	return i
}

// text is the array as arrow-go prints it.
func text(t *testing.T, a *cdevice.Array) string {
	t.Helper()
	host, err := a.CopyToHost(background, nil)
	require.NoError(t, err)
	defer host.Release()
	return host.String()
}

// values returns the values that a consumer reads on the host, after the stream of the interface.
func values(t *testing.T, dev device.Device, i cudaarray.Interface, opts ...cudaarray.ImportOption) string {
	t.Helper()
	released := 0
	a, err := cudaarray.Import(i, cdevice.Lifetime{Release: func() { released++ }}, append(opts, cudaarray.WithDevice(dev))...)
	require.NoError(t, err)
	defer func() {
		a.Release()
		flush(t, dev)
		assert.Equal(t, 1, released)
	}()
	return text(t, a)
}

// flush completes the frees and functions that wait for work.
func flush(t *testing.T, dev device.Device) {
	t.Helper()
	require.NoError(t, dev.(interface{ Flush(context.Context) error }).Flush(background))
}

func number(n int64) *int64 { return &n }
