package triton_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// endsAfter is a context that ends when it was asked for its error a number of times.
type endsAfter struct {
	context.Context
	calls int
}

func (c *endsAfter) Err() error {
	if c.calls--; c.calls < 0 {
		return context.Canceled
	}
	return nil
}

// A context ends an allocation before it, and between its pieces.
func TestContextEndsAnAllocation(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	batch := onHost(t, numbers, numbersRows)
	const pieces = 4
	for calls := range pieces {
		_, err := triton.NewSystemOutputs(&endsAfter{background, calls}, "o", schemaOf(field("x", integers)), pieces<<21)
		assert.ErrorIs(t, err, context.Canceled, "after %d calls", calls)
		assert.ErrorContains(t, err, `triton: region: region "o" = 67108864 bytes`)
	}
	ended, cancel := context.WithCancel(background)
	cancel()
	_, err := triton.NewSystemRegion(ended, "r", batch)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, objects(t))
}
