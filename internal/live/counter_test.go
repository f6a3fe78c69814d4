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
		if c[i].begun.Load() != 0 {
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

// Objects that begin and end while the count is read, on different goroutines, hide none that is alive all the while.
func TestCounterHidesNothing(t *testing.T) {
	const alive = 3
	var c Counter
	c.Add(alive)
	begun, end := make(chan struct{}, 8), make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				c.Add(1)
				select {
				case begun <- struct{}{}:
				case <-end:
					c.Add(-1)
					return
				}
			}
		})
		all.Go(func() {
			for {
				select {
				case <-begun:
					c.Add(-1)
				case <-end:
					return
				}
			}
		})
	}
	least := int64(alive)
	for range 200_000 {
		least = min(least, c.Sum())
	}
	close(end)
	all.Wait()
	assert.EqualValues(t, alive, least)
	assert.EqualValues(t, alive+len(begun), c.Sum())
}
