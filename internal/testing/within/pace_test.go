package within

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A machine that is busy excuses calls as far as it has delayed goroutines while they ran, and no further.
func TestAllowanceIsOfTheDelaysMeanwhile(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	p := Pace{begun: at(0)}
	for _, ms := range []int{1, 32, 33, 44, 45} { // the ends of sleeps of 1 ms, two of which are 30 and 10 ms late
		p.step(at(ms))
	}
	for _, c := range []struct{ from, to, want int }{{0, 46, 30}, {31, 46, 30}, {32, 46, 10}, {44, 46, 0}, {44, 96, 50}} {
		assert.Equal(t, paceSteps*time.Duration(c.want)*time.Millisecond, p.Allowance(at(c.from), at(c.to)), "%v", c)
	}
}

func TestPaceIsMeasuredUntilItStops(t *testing.T) {
	p := MeasurePace()
	began := time.Now()
	Eventually(t, "a step", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.begun.After(began)
	})
	p.Stop()
	assert.GreaterOrEqual(t, p.Allowance(began, time.Now().Add(time.Second)), paceSteps*900*time.Millisecond)
}
