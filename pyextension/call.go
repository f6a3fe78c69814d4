//go:build cgo && unix

package pyextension

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

func init() { capi.Serve(server{}) }

// call is a call of a function. What most calls need is in one piece of memory.
type call struct {
	f       callee
	request requestReader
	args    []any
	scope   scope
	results results // the objects in the reply
	reply   []byte

	argsMemory  [4]any
	replyMemory [64]byte

	// Of a call that has a goroutine of its own.
	number    int64
	done      chan struct{}
	mu        sync.Mutex // the rest
	finished  bool
	cancelled bool
	ended     uintptr // an object of Python that is called when the call has ended
}

// callee is a function of the library, or one that is built in.
type callee interface {
	run(*scope, *results, []any) (any, error)
	// waits reports whether a call may wait for something that the end of its context ends.
	waits(args []any) bool
	// apart reports whether a call has a goroutine of its own wherever it comes from: one that is not locked to a thread.
	apart() bool
	called() string
}

// server implements capi.Server.
type server struct{}

func (server) Call(data []byte, caller capi.Caller, wait time.Duration, reply capi.Reply) int64 {
	c := unused.Get().(*call)
	if err := c.read(data); err != nil {
		c.request.discard()
		if caller.Ended != 0 {
			capi.DropPythonObject(caller.Ended)
		}
		reply.Put(failure(err))
		return 0
	}
	c.scope.begin()
	c.scope.thread = caller.Thread
	c.results.scope = &c.scope
	switch {
	case caller.Ended != 0:
		c.ended = caller.Ended
		number := c.register()
		c.start()
		return number
	case !c.f.waits(c.args):
		c.complete()
		reply.Put(c.take())
		c.reuse()
		return 0
	case !caller.Main: // no signal interrupts this thread: only the end of the process ends the context
		number := c.register()
		c.complete()
		lookup(number, true)
	default:
		c.start()
		if !c.wait(wait) {
			return c.register()
		}
	}
	reply.Put(c.take())
	return 0
}

// unused has calls that have ended.
var unused = sync.Pool{New: func() any { return &call{} }}

// reuse keeps the memory of a call for another one, unless a reader or a stream that outlives the call holds its scope, or a goroutine
// has it.
func (c *call) reuse() {
	if c.done == nil && c.scope.users.Load() == 0 {
		*c = call{}
		unused.Put(c)
	}
}

// read reads a request: a list of a name and arguments.
func (c *call) read(data []byte) error {
	d := &c.request
	d.begin(data)
	letters, n, err := d.list()
	if err != nil || letters != wireList || n == 0 {
		return cmp.Or(err, errNoFunction)
	}
	if letter, err := d.take(1); err != nil || letter[0] != wireString {
		return cmp.Or(err, errNoFunction)
	}
	name, err := d.sized()
	if err != nil {
		return err
	}
	c.args = c.argsMemory[:0]
	for range n - 1 {
		arg, err := d.value()
		if err != nil {
			return err
		}
		c.args = append(c.args, arg)
	}
	c.f, err = find(name)
	return err
}

var errNoFunction = errors.New("request names no function")

func find(name []byte) (callee, error) {
	if f := builtins[string(name)]; f != nil {
		return f, nil
	}
	if f := functions.find(name); f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("there is no function %q: the library and the Python package may be of different versions", name)
}

// start runs the function on a goroutine: the thread of the caller may stop waiting for it.
func (c *call) start() {
	c.done = make(chan struct{})
	running.Add(1)
	go func() {
		defer func() { // in this order: the end of a call is seen when nothing of it is in use
			running.Add(-1)
			c.finish()
		}()
		c.perform()
	}()
}

// complete runs the function, and returns when it has ended.
func (c *call) complete() {
	if c.f.apart() {
		c.start()
		<-c.done
	} else {
		c.perform()
	}
}

// perform runs the function on this goroutine.
func (c *call) perform() {
	defer c.close()
	c.run()
}

// run makes the reply of a function, in every case.
func (c *call) run() {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			c.results.discard()
			c.reply = panicked(c.f.called(), v)
		} else if !returned { // which ends the process if the goroutine is that of a thread of Python
			c.reply = failure(&exception{kind: "Panic", text: c.f.called() + ": the function ended its goroutine with runtime.Goexit"})
		}
	}()
	v, err := c.f.run(&c.scope, &c.results, c.args)
	returned = true
	var e encoder
	if err == nil {
		e.data = c.replyMemory[:0]
		e.letter(wireResult)
		err = e.value(v)
	}
	c.reply = e.data
	if err != nil {
		c.results.discard()
		c.reply = failure(err)
	}
}

// close releases the arguments. That panics if the function has released one that it borrowed.
func (c *call) close() {
	for !c.scope.closed() {
		c.closeScope()
	}
}

func (c *call) closeScope() {
	defer func() {
		if v := recover(); v != nil {
			c.results.discard()
			c.reply = panicked(c.f.called()+": an argument was released that is borrowed", v)
		}
	}()
	for len(c.request.sources) > 0 {
		s := c.request.sources[0]
		c.request.sources = c.request.sources[1:]
		s.discard()
	}
	c.scope.close()
}

func panicked(where string, v any) []byte {
	return failure(&exception{kind: "Panic", text: fmt.Sprintf("%s: panic: %v\n\n%s", where, v, debug.Stack())})
}

// failure is the reply for an error: the exception of a source in Python, if it is behind the error and was not raised before.
func failure(err error) []byte {
	var e encoder
	var source *sourceError
	if errors.As(err, &source) {
		if exception := source.take(); exception != 0 {
			e.letter(wireException)
			e.int64(int64(exception))
			e.sized(err.Error())
			return e.data
		}
	}
	kind, code := kindOf(err)
	e.letter(wireError)
	e.sized(kind)
	e.sized(textOf(err))
	e.data = binary.LittleEndian.AppendUint32(e.data, uint32(code))
	return e.data
}

func (c *call) finish() {
	c.mu.Lock()
	c.finished = true
	cancelled, ended := c.cancelled, c.ended
	c.ended = 0
	close(c.done) // before Python is told, which asks for the reply then
	c.mu.Unlock()
	if cancelled {
		c.discard()
	} else if ended != 0 {
		endings.add(ended)
	}
}

// discard drops the reply of a cancelled call. It waits for the GIL, and may run release callbacks.
func (c *call) discard() {
	c.results.discard()
	if len(c.reply) > 0 && c.reply[0] == wireException {
		capi.DropPythonObject(uintptr(binary.LittleEndian.Uint64(c.reply[1:])))
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
	c.results.settled(true)
	return c.reply
}

func (server) Wait(number int64, wait time.Duration, reply capi.Reply) int64 {
	c := lookup(number, false)
	if c != nil && !c.wait(wait) {
		return number
	}
	if c == nil || lookup(number, true) == nil { // another thread was first, or cancelled it
		reply.Put(failure(fmt.Errorf("there is no call %d", number)))
		return 0
	}
	reply.Put(c.take())
	return 0
}

func (server) Cancel(number int64) {
	c := lookup(number, true)
	if c == nil {
		return
	}
	c.scope.end()
	c.mu.Lock()
	ended, finished := c.ended, c.finished
	c.cancelled, c.ended = true, 0
	c.mu.Unlock()
	if finished {
		c.discard()
	}
	if ended != 0 {
		capi.DropPythonObject(ended)
	}
}

func (server) Release(h uint64) { release(handle.Word(h)) }

func (server) StreamReleased(token uint64) { release(handle.Word(token)) }
