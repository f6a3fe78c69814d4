//go:build cgo && unix

package pyextension

import (
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

// calls are those in progress that Python may still ask for.
var calls = struct {
	mu       sync.Mutex
	last     int64
	byNumber map[int64]*call
}{byNumber: map[int64]*call{}}

// running counts the goroutines of calls; other calls have none.
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

// endings tells Python of calls that have ended. One goroutine does it, as each would keep a thread while it waits for the GIL.
var endings ended

type ended struct {
	mu      sync.Mutex
	objects []uintptr // to be called
	telling bool
}

func (e *ended) add(object uintptr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.objects = append(e.objects, object)
	if !e.telling {
		e.telling = true
		go e.tell()
	}
}

func (e *ended) tell() {
	for {
		e.mu.Lock()
		objects := e.objects
		e.objects, e.telling = nil, len(objects) > 0
		e.mu.Unlock()
		if len(objects) == 0 {
			return
		}
		capi.CallPythonObjects(objects)
	}
}
