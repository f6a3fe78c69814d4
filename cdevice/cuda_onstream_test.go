package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// A stream of another device is an error of every call that takes one, which names the argument. (Tests of tree and copyplan
// have all pairs of devices.)
func TestStreamsOfEveryDevice(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 1, 100, false)
	defer rec.Release()
	calls := map[string]func(b *cdevice.RecordBatch, s device.Stream) error{
		"CopyTo": func(b *cdevice.RecordBatch, s device.Stream) error {
			return ended(b.CopyTo(background, gpu, cdevice.WithStream(s)))
		},
		"CopyToHost": func(b *cdevice.RecordBatch, s device.Stream) error {
			return ended(b.CopyToHost(background, nil, cdevice.WithStream(s)))
		},
		"WithEvent": func(b *cdevice.RecordBatch, s device.Stream) error { return ended(b.WithEvent(s)) },
		"WaitOn":    (*cdevice.RecordBatch).WaitOn,
		"UsedOn":    (*cdevice.RecordBatch).UsedOn,
	}
	onCPU, onGPU := newStream(t, device.CPUDevice()), newStream(t, gpu)
	for _, row := range []struct {
		call     string
		of       device.Device
		stream   device.Stream
		argument string // that the error names; empty if the stream is accepted
	}{
		{"CopyTo", device.CPUDevice(), onGPU, ""}, {"CopyTo", gpu, onGPU, ""}, {"CopyTo", gpu, onCPU, "WithStream"},
		{"CopyToHost", gpu.Pinned(), onGPU, ""}, {"CopyToHost", gpu, onCPU, "WithStream"}, {"CopyToHost", device.CPUDevice(), onGPU, "WithStream"},
		{"WithEvent", device.CPUDevice(), onCPU, ""}, {"WithEvent", gpu.Pinned(), onGPU, ""}, {"WithEvent", gpu, onCPU, "stream"}, {"WithEvent", device.CPUDevice(), onGPU, "stream"},
		{"WaitOn", gpu.Pinned(), onGPU, ""}, {"WaitOn", gpu, onCPU, "stream"},
		{"UsedOn", gpu, onGPU, ""}, {"UsedOn", gpu, onCPU, ""}, // the work is that of both devices
	} {
		b, err := cdevice.CopyToDevice(background, rec, row.of)
		require.NoError(t, err)
		err = calls[row.call](b, row.stream)
		if row.argument == "" {
			assert.NoError(t, err, "%s of %s", row.call, row.of.ID())
		} else {
			var field *cdevice.FieldError
			require.ErrorAs(t, err, &field, "%s of %s", row.call, row.of.ID())
			assert.Equal(t, row.argument, field.Field)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		}
		b.Release()
	}
	require.NoError(t, gpu.Flush(background))
}
