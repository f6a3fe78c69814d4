package items

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// A goroutine that may begin at any time is counted before it does: otherwise a count of zero, at
// the end of a program, could rise again.
func TestAfterIsCountedFromTheBeginning(t *testing.T) {
	within.Eventually(t, "no goroutine of an earlier test", func() bool { return Goroutines.Load() == 0 })
	ran := make(chan int64)
	stop := After(time.Hour, func() { ran <- 0 })
	assert.EqualValues(t, 1, Goroutines.Load(), "it waits")
	stop()
	assert.Zero(t, Goroutines.Load())
	stop()
	assert.Zero(t, Goroutines.Load(), "uncounted once")

	stop = After(0, func() { ran <- Goroutines.Load() })
	assert.EqualValues(t, 1, <-ran, "it runs")
	within.Eventually(t, "its end", func() bool { return Goroutines.Load() == 0 })
	stop() // too late
	assert.Zero(t, Goroutines.Load())
}
