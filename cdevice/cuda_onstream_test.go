package cdevice_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// streamArguments are a stream of every device that a program may mix up.
func streamArguments(t *testing.T, gpu, second, stranger *cudaalloc.Device) map[string]device.Stream {
	return map[string]device.Stream{
		"nil":               nil,
		"a nil pointer":     (*cudaalloc.Stream)(nil),
		"of the CPU":        newStream(t, device.CPUDevice()),
		"of the GPU":        newStream(t, gpu),
		"of the second GPU": newStream(t, second),
		"of another driver": newStream(t, stranger),
		"borrowed":          gpu.Legacy(),
	}
}

// Every call that takes a stream, with a stream of every device: those named are
// accepted, and all others are an error that names the argument.
func TestStreamsOfEveryDevice(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	gpu, second := m.GPUs[0], m.GPUs[1]
	stranger := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 1, 100, false)
	defer rec.Release()
	const (
		ofIt     = "of the GPU, borrowed"
		ofEither = ofIt + ", of the second GPU"
	)
	on := func(dev device.Device) *cdevice.RecordBatch {
		b, err := cdevice.CopyToDevice(background, rec, dev)
		require.NoError(t, err)
		return b
	}
	wrapped := func(t *testing.T) *cdevice.RecordBatch {
		b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		return b
	}
	toHost := func(b *cdevice.RecordBatch, s device.Stream) error {
		got, err := b.CopyToHost(background, nil, cdevice.WithStream(s))
		if err == nil {
			got.Release()
		}
		return err
	}
	to := func(b *cdevice.RecordBatch, dev device.Device, s device.Stream) error {
		got, err := b.CopyTo(background, dev, cdevice.WithStream(s))
		if err == nil {
			got.Release()
		}
		return err
	}
	record := func(b *cdevice.RecordBatch, s device.Stream) error {
		recorded, err := b.RecordEvent(s)
		if err == nil {
			recorded.Release()
		}
		return err
	}
	unnumbered := func() *cdevice.RecordBatch { // page-locked memory of no GPU in particular
		b := on(gpu.Pinned())
		require.NoError(t, b.Synchronize(background))
		out := garbageArray()
		require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
		out.DeviceID = device.NoOrdinal
		b.Release()
		imported, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema(), cdevice.WithDevice(gpu.Pinned()))
		require.NoError(t, err)
		return imported
	}
	for _, row := range []struct {
		call     string
		batch    func() *cdevice.RecordBatch
		do       func(b *cdevice.RecordBatch, s device.Stream) error
		accepted string
		argument string
	}{
		{"CopyTo a GPU", func() *cdevice.RecordBatch { return wrapped(t) }, func(b *cdevice.RecordBatch, s device.Stream) error { return to(b, gpu, s) },
			ofIt, "WithStream"},
		{"CopyTo page-locked memory", func() *cdevice.RecordBatch { return on(gpu) }, func(b *cdevice.RecordBatch, s device.Stream) error { return to(b, gpu.Pinned(), s) },
			ofIt, "WithStream"},
		{"CopyTo managed memory", func() *cdevice.RecordBatch { return on(gpu) }, func(b *cdevice.RecordBatch, s device.Stream) error { return to(b, gpu.Managed(), s) },
			ofIt, "WithStream"},
		{"CopyTo another GPU", func() *cdevice.RecordBatch { return on(gpu) }, func(b *cdevice.RecordBatch, s device.Stream) error { return to(b, second, s) },
			ofEither, "WithStream"},
		{"CopyTo the CPU", func() *cdevice.RecordBatch { return on(gpu) }, func(b *cdevice.RecordBatch, s device.Stream) error { return to(b, device.CPUDevice(), s) },
			ofIt, "WithStream"},
		{"CopyToHost", func() *cdevice.RecordBatch { return on(gpu) }, toHost, ofIt, "WithStream"},
		{"CopyToHost of page-locked memory", func() *cdevice.RecordBatch { return on(gpu.Pinned()) }, toHost, ofIt, "WithStream"},
		{"CopyToHost of the CPU's", func() *cdevice.RecordBatch { return wrapped(t) }, toHost, "of the CPU", "WithStream"},
		{"RecordEvent", func() *cdevice.RecordBatch { return on(gpu) }, record, ofIt, "stream"},
		{"RecordEvent of page-locked memory", func() *cdevice.RecordBatch { return on(gpu.Pinned()) }, record, ofIt, "stream"},
		{"RecordEvent of managed memory", func() *cdevice.RecordBatch { return on(gpu.Managed()) }, record, ofIt, "stream"},
		{"RecordEvent of memory without an ordinal", unnumbered, record, ofEither + ", of another driver", "stream"}, // its GPU is unknown
		{"RecordEvent of the CPU's", func() *cdevice.RecordBatch { return wrapped(t) }, record, "of the CPU", "stream"},
		{"WaitOn", func() *cdevice.RecordBatch { return on(gpu) }, (*cdevice.RecordBatch).WaitOn, ofEither, ""},
		{"WaitOn of page-locked memory", func() *cdevice.RecordBatch { return on(gpu.Pinned()) }, (*cdevice.RecordBatch).WaitOn, ofEither, ""},
		{"WaitOn of the CPU's", func() *cdevice.RecordBatch { return wrapped(t) }, (*cdevice.RecordBatch).WaitOn,
			ofEither + ", of the CPU, of another driver", "stream"},
		{"UsedOn", func() *cdevice.RecordBatch { return on(gpu) }, (*cdevice.RecordBatch).UsedOn, ofEither + ", of the CPU, of another driver", "stream"},
	} {
		for name, s := range streamArguments(t, gpu, second, stranger) {
			t.Run(row.call+"/"+name, func(t *testing.T) {
				b := row.batch()
				defer b.Release()
				err := row.do(b, s)
				if slices.Contains(strings.Split(row.accepted, ", "), name) {
					assert.NoError(t, err)
					return
				}
				require.Error(t, err)
				if row.argument != "" {
					assert.ErrorIs(t, err, arrow.ErrInvalid)
					var field *cdevice.FieldError
					require.ErrorAs(t, err, &field)
					assert.Equal(t, row.argument, field.Field)
				}
				if name == "of the CPU" {
					assert.ErrorContains(t, err, "cpu")
					assert.ErrorContains(t, err, "cuda")
				}
			})
		}
	}
	require.NoError(t, gpu.Flush(background))
	require.NoError(t, second.Flush(background))
	require.NoError(t, stranger.Flush(background))
}

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
