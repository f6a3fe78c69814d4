//go:build cgo && unix

package pyextension

import (
	"sync"
	"sync/atomic"
)

// calls are those in progress that Python may still ask for.
var calls = struct {
	mu       sync.Mutex
	last     int64
	byNumber map[int64]*call
}{byNumber: map[int64]*call{}}

// running counts the goroutines of calls.
var running atomic.Int64

// register gives the call a number.
func (c *call) register() int64 {
	calls.mu.Lock()
	defer calls.mu.Unlock()
	calls.last++
	c.number = calls.last
	calls.byNumber[c.number] = c
	return c.number
}

// lookup returns the call registered under number, or nil, and unregisters it if forget is set.
func lookup(number int64, forget bool) *call {
	calls.mu.Lock()
	defer calls.mu.Unlock()
	c := calls.byNumber[number]
	if forget {
		delete(calls.byNumber, number)
	}
	return c
}
