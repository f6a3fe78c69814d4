package live

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The sum is that of all goroutines, and goroutines that count at the same time have parts of their own.
func TestCounterOfSeveralGoroutines(t *testing.T) {
	const goroutines, times = 16, 1000
	var c Counter
	var all, counted sync.WaitGroup
	end := make(chan struct{})
	counted.Add(goroutines)
	for range goroutines {
		all.Go(func() {
			for range times {
				c.Add(3)
				c.Add(-2)
			}
			counted.Done()
			<-end // no stack is used again
		})
	}
	counted.Wait()
	close(end)
	all.Wait()
	assert.EqualValues(t, goroutines*times, c.Sum())
	used := 0
	for i := range c {
		if c[i].Load() != 0 {
			used++
		}
	}
	assert.Greater(t, used, 1)
}

// An object may end on another goroutine than the one that made it.
func TestCounterOfAnObjectThatMoves(t *testing.T) {
	var c Counter
	c.Add(1)
	done := make(chan struct{})
	go func() { c.Add(-1); close(done) }()
	<-done
	assert.Zero(t, c.Sum())
}
