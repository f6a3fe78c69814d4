//go:build !windows

package main

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim/cudasimtest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// The library loads the driver once in a process, and so does not find the simulated machine of another test.
var isLoaded bool

// The test fails if a copy does not wait for the event, or if the memory is not freed once, after its last use.
func TestProducer(t *testing.T) {
	if isLoaded {
		t.Skip("the library has loaded the driver of a machine that has ended")
	}
	isLoaded = true
	cdevicetest.CheckLeaks(t)
	cudasimtest.Start(t)
	batch, err := produce(7, 1000)
	require.NoError(t, err)
	gpu, err := cudaalloc.Open(0)
	require.NoError(t, err)
	stream, err := gpu.NewStream()
	require.NoError(t, err)
	defer stream.Close()
	to, err := gpu.Allocate(t.Context(), 4000, stream)
	require.NoError(t, err)
	column := batch.Column(0)
	assert.NoError(t, batch.WaitOn(stream)) // the copy comes after the library's work
	assert.NoError(t, gpu.Copy([]device.Range{{Dst: to.Ptr(), Src: column.Buffers()[1], Size: 4000}}, stream))
	assert.NoError(t, batch.UsedOn(stream))
	column.Release()
	assert.NoError(t, to.Free(stream))

	rec, err := batch.CopyToHost(t.Context(), nil)
	require.NoError(t, err)
	batch.Release()
	defer rec.Release()
	for _, value := range rec.Column(0).(*array.Int32).Values() {
		assert.EqualValues(t, 7, value)
	}
}
