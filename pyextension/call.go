//go:build cgo && unix

package pyextension

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

func init() { capi.Serve(server{}) }

// call is a call of a function that runs on a goroutine of its own.
type call struct {
	number int64
	scope  *scope
	done   chan struct{}

	mu        sync.Mutex // the rest
	reply     []byte     // once done is closed
	results   results    // the objects in the reply
	finished  bool
	cancelled bool
	notify    []int // file descriptors to which the number is not yet written
}

// server implements capi.Server.
type server struct{}

func (server) Call(data []byte, wait time.Duration) (int64, []byte) {
	d := newRequest(data)
	v, err := d.value()
	name, args, err := split(v, err)
	if err != nil {
		d.discard()
		return 0, failure(err)
	}
	c := start(name, args, d.sources)
	if !c.wait(wait) {
		return c.register(), nil
	}
	return 0, c.take()
}

func split(v any, err error) (string, []any, error) {
	if err != nil {
		return "", nil, err
	}
	if list, ok := v.([]any); ok && len(list) > 0 {
		if name, ok := list[0].(string); ok {
			return name, list[1:], nil
		}
	}
	return "", nil, errors.New("request names no function")
}

// start runs a function. It is on a goroutine: the thread of the caller may stop waiting for it.
func start(name string, args []any, sources []*source) *call {
	c := &call{scope: newScope(), done: make(chan struct{})}
	c.results.scope = c.scope
	running.Add(1)
	whole := func() {
		var reply []byte
		defer func() { // in this order: the end of a call is seen when nothing of it is in use
			running.Add(-1)
			c.finish(reply)
		}()
		defer c.close(name, sources, &reply)
		c.run(name, args, &reply)
	}
	if runsInline(name, args) {
		whole()
	} else {
		go whole()
	}
	return c
}

// run makes the reply of a function, in every case.
func (c *call) run(name string, args []any, reply *[]byte) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			c.results.discard()
			*reply = panicked(name, v)
		} else if !returned {
			*reply = failure(&exception{kind: "Panic", text: name + ": the function ended its goroutine with runtime.Goexit"})
		}
	}()
	v, err := perform(c.scope, &c.results, name, args)
	returned = true
	var e encoder
	if err == nil {
		e.letter(wireResult)
		err = e.value(v)
	}
	*reply = e.data
	if err != nil {
		c.results.discard()
		*reply = failure(err)
	}
}

// close releases the arguments. That panics if the function has released one that it borrowed.
func (c *call) close(name string, sources []*source, reply *[]byte) {
	for _, s := range sources {
		c.scope.defers(s.discard)
	}
	for !c.scope.closed() {
		func() {
			defer func() {
				if v := recover(); v != nil {
					c.results.discard()
					*reply = panicked(name+": an argument was released that is borrowed", v)
				}
			}()
			c.scope.close()
		}()
	}
}

func panicked(where string, v any) []byte {
	return failure(&exception{kind: "Panic", text: fmt.Sprintf("%s: panic: %v\n\n%s", where, v, debug.Stack())})
}

// perform runs a function of the library, or one that is built in.
func perform(sc *scope, r *results, name string, args []any) (any, error) {
	if strings.HasPrefix(name, ".") {
		return builtin(sc, r, name, args)
	}
	functions.mu.Lock()
	f := functions.byName[name]
	functions.mu.Unlock()
	if f == nil {
		return nil, fmt.Errorf("there is no function %q", name)
	}
	return f.run(sc, r, args)
}

func failure(err error) []byte {
	var e encoder
	e.letter(wireError)
	e.sized(kindOf(err))
	e.sized(textOf(err))
	return e.data
}

func (c *call) finish(reply []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reply, c.finished = reply, true
	close(c.done) // before tell: a call whose number is read has ended
	if c.cancelled {
		c.results.discard()
	} else {
		c.tell()
	}
}

// wait reports whether the call has ended within a time; a negative one has no limit.
func (c *call) wait(limit time.Duration) bool {
	if limit < 0 {
		<-c.done
		return true
	}
	select {
	case <-c.done:
		return true
	default:
	}
	if limit == 0 {
		return false
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
		return false
	}
}

// take returns the reply to the waiting caller.
func (c *call) take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify = nil
	c.results.settled(true)
	return c.reply
}

func (server) Wait(number int64, wait time.Duration) (int64, []byte) {
	c := lookup(number, false)
	if c == nil {
		return 0, failure(fmt.Errorf("there is no call %d", number))
	}
	if !c.wait(wait) {
		return number, nil
	}
	if lookup(number, true) == nil { // another thread was first, or cancelled it
		return 0, failure(fmt.Errorf("there is no call %d", number))
	}
	return 0, c.take()
}

func (server) Cancel(number int64) {
	c := lookup(number, true)
	if c == nil {
		return
	}
	c.scope.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelled, c.notify = true, nil
	if c.finished {
		c.results.discard()
	}
}

func (server) Release(h uint64) { release(handle.Word(h)) }

func (server) StreamReleased(token uint64) { release(handle.Word(token)) }
