package gpu

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// A wait naps between its queries until its pauses are as long as a timer's. Where many nap, it does not.
func TestWaitsNap(t *testing.T) {
	napped := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- poll(ctx, func() (bool, error) { return false, nil }) }()
		defer func() {
			cancel()
			<-result
		}()
		for range 100_000 {
			if len(naps) > 0 {
				return true
			}
			runtime.Gosched()
		}
		return false
	}
	within.Eventually(t, "a wait that naps", napped)
	for range cap(naps) {
		naps <- struct{}{}
	}
	assert.False(t, nap(time.Hour), "too many nap")
	for range cap(naps) {
		<-naps
	}
	assert.True(t, nap(time.Microsecond))
	assert.Empty(t, naps)
}
