package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// A copy WithStream reads the output of earlier work on the stream, in all memory.

// bufferOf is the address of a buffer of the array.
func bufferOf(t *testing.T, a *cdevice.Array, i uintptr) device.Ptr {
	t.Helper()
	var out abi.ArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(a, abi.As[cdevice.CArrowDeviceArray](&out), nil))
	defer cdevice.ReleaseStruct(abi.As[cdevice.CArrowDeviceArray](&out))
	return device.Ptr(*abi.At[uintptr](out.Array.Buffers + 8*i))
}

func TestGPUCopyToHostOfHostMemoryWaitsForItsStream(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for _, mem := range hostAllocators(t, gpu) {
		rec := columnsOf(mem, 1, 1000, false)
		a, err := cdevice.WrapArray(rec.Column(0), mem.Device())
		require.NoError(t, err)
		rec.Release()
		s := newStream(t, gpu)
		open := m.Hold(t, s)
		require.NoError(t, gpu.Memset(bufferOf(t, a, 1), 1, 8*1000, s))
		within.Context(t, "CopyToHost", func(ctx context.Context) error {
			_, err := a.CopyToHost(ctx, nil, cdevice.WithStream(s))
			return err
		})
		open()
		got, err := a.CopyToHost(background, nil, cdevice.WithStream(s))
		require.NoError(t, err)
		for _, v := range got.(*array.Int64).Int64Values() {
			require.EqualValues(t, 0x0101010101010101, v)
		}
		got.Release()
		a.Release()
		require.NoError(t, gpu.Flush(background))
	}
}

// Lazy: work is done when a program waits for it, and not before.
func TestOffsetsAreReadOnTheStreamOfACopy(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true, Devices: 2})
	gpu := m.GPUs[0]
	words := fromJSON(t, arrow.BinaryTypes.String, `["one","two","three","four"]`)
	for name, copied := range map[string]func(*cdevice.Array, cdevice.CopyOption) (arrow.Array, error){
		"CopyToHost": func(a *cdevice.Array, on cdevice.CopyOption) (arrow.Array, error) {
			return a.CopyToHost(background, nil, on)
		},
		"CopyTo": func(a *cdevice.Array, on cdevice.CopyOption) (arrow.Array, error) {
			there, err := a.CopyTo(background, gpu, on)
			if err != nil {
				return nil, err
			}
			defer there.Release()
			return there.CopyToHost(background, nil)
		},
		"CopyTo another GPU": func(a *cdevice.Array, on cdevice.CopyOption) (arrow.Array, error) {
			there, err := a.CopyTo(background, m.GPUs[1], on)
			if err != nil {
				return nil, err
			}
			defer there.Release()
			return there.CopyToHost(background, nil)
		},
	} {
		all, err := copyArray(background, words, gpu)
		require.NoError(t, err)
		require.NoError(t, all.Synchronize(background))
		a, err := all.Slice(1, 4)
		require.NoError(t, err)
		s := newStream(t, gpu)
		require.NoError(t, gpu.Memset(bufferOf(t, all, 1), 0, 5*4, s))
		got, err := copied(a, cdevice.WithStream(s))
		require.NoError(t, err, name)
		assert.Equal(t, []string{"", "", ""}, stringsOf(got), name)
		got.Release()
		a.Release()
		all.Release()
		require.NoError(t, gpu.Flush(background))
	}
}

func stringsOf(a arrow.Array) (all []string) {
	for i := range a.Len() {
		all = append(all, a.(*array.String).Value(i))
	}
	return all
}
