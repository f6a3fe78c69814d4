package main

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim/cudasimtest"
)

// The test fails if the copy did not wait for the event, or if the memory is not freed, or freed too early.
func TestProducer(t *testing.T) {
	cudasimtest.Start(t)
	cdevicetest.CheckLeaks(t)
	batch, err := produce(7, 1000)
	require.NoError(t, err)
	defer batch.Release()
	rec, err := batch.CopyToHost(t.Context(), nil)
	require.NoError(t, err)
	defer rec.Release()
	for _, value := range rec.Column(0).(*array.Int32).Values() {
		assert.EqualValues(t, 7, value)
	}
}
