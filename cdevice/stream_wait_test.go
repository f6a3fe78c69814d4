package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// consume is a consumer that reads a stream to its end, and releases it.
func consume[S cdevice.StreamStruct](t *testing.T, s *S) {
	t.Helper()
	r, err := cdevice.ImportRecordReader(s)
	require.NoError(t, err)
	defer r.Release()
	for range r.All() {
	}
}

func TestWaitForAConsumer(t *testing.T) {
	checkLeaks(t)
	for name, row := range map[string]struct {
		fails error
		use   func(*cdevice.CArrowDeviceArrayStream)
		want  error
	}{
		"to the end":     {nil, func(s *cdevice.CArrowDeviceArrayStream) { consume(t, s) }, nil},
		"to the error":   {errSource, func(s *cdevice.CArrowDeviceArrayStream) { consume(t, s) }, errSource},
		"released early": {nil, func(s *cdevice.CArrowDeviceArrayStream) { cdevice.ReleaseStruct(s) }, context.Canceled},
	} {
		r := asked(t, row.fails, numbered(t, 2)...)
		var s cdevice.CArrowDeviceArrayStream
		require.NoError(t, cdevice.ExportRecordReader(r, &s))
		assert.ErrorIs(t, r.Wait(canceled), context.Canceled, name, "it has not ended")
		done := make(chan error)
		go func() { done <- r.Wait(background) }()
		row.use(&s)
		assert.ErrorIs(t, <-done, row.want, name)
		assert.ErrorIs(t, r.Wait(canceled), row.want, name, "it has ended, so the context does not matter")
		r.Release()
		assert.ErrorIs(t, r.Wait(background), row.want, name, "after the release, too")
	}
}

func TestWaitForABatchThatIsNotExported(t *testing.T) {
	checkLeaks(t)
	gpu := batchOnDevice(t, cuda, 0)
	defer gpu.Release()
	r, err := cdevice.NewRecordReader(gpu.Schema(), device.CUDA, yielding(nil, gpu))
	require.NoError(t, err)
	var s cdata.CArrowArrayStream
	require.NoError(t, cdevice.ExportRecordReader(r, &s))
	consume(t, &s)
	assert.ErrorIs(t, r.Wait(background), device.ErrNotSupported)
	assert.ErrorContains(t, r.Wait(background), "CopyTo with device.CPUDevice() copies it")
	r.Release()
}

func TestWaitForTwoConsumers(t *testing.T) {
	checkLeaks(t)
	r := asked(t, nil, numbered(t, 2)...)
	defer r.Release()
	assert.EqualError(t, r.Wait(background), "cdevice: wait: the reader was not exported: invalid")
	assert.ErrorIs(t, r.Wait(background), arrow.ErrInvalid)
	var one, two cdevice.CArrowDeviceArrayStream
	require.NoError(t, cdevice.ExportRecordReader(r, &one))
	require.NoError(t, cdevice.ExportRecordReader(r, &two))
	cdevice.ReleaseStruct(&one)
	assert.EqualError(t, r.Wait(canceled), "cdevice: wait: context canceled", "the other one is held")
	consume(t, &two)
	assert.NoError(t, r.Wait(background))
	require.NoError(t, cdevice.ExportRecordReader(r, &one))
	assert.ErrorIs(t, r.Wait(canceled), context.Canceled, "exported again")
	cdevice.ReleaseStruct(&one)
	assert.NoError(t, r.Wait(background))
}
