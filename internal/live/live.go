// Package live lists the live objects of package cdevice, each with the stack of the code that made
// it, to find a missing release. Unless tracing is on, an object costs one atomic load and one
// word.
package live

import (
	"cmp"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// depth is the number of frames kept of a stack: more than this module's own.
const depth = 48

// Object is an entry of the list. A nil Object is one that is not traced.
type Object struct {
	kind   string
	number uint64 // objects are listed in the order in which they were made
	stack  [depth]uintptr
	frames int
}

var tracing atomic.Bool

var objects struct {
	sync.Mutex
	made uint64
	live map[*Object]struct{}
}

func init() {
	if v := os.Getenv("CDEVICE_TRACE"); v != "" && v != "0" {
		Trace(true)
	}
}

// Tracing reports whether tracing is on.
func Tracing() bool { return tracing.Load() }

// Trace switches tracing on or off for objects that are made from now on, and returns what
// it was. Objects that are traced already stay in the list until they end.
func Trace(on bool) (before bool) { return tracing.Swap(on) }

// Add returns the entry of a new object, or nil if tracing is off.
func Add(kind string) *Object {
	if !tracing.Load() {
		return nil
	}
	return add(kind)
}

func add(kind string) *Object {
	o := &Object{kind: kind}
	o.frames = runtime.Callers(3, o.stack[:])
	objects.Lock()
	defer objects.Unlock()
	if objects.live == nil {
		objects.live = map[*Object]struct{}{}
	}
	objects.made++
	o.number = objects.made
	objects.live[o] = struct{}{}
	return o
}

// Remove takes the entry from the list.
func (o *Object) Remove() {
	if o == nil {
		return
	}
	objects.Lock()
	defer objects.Unlock()
	delete(objects.live, o)
}

// Kind returns the kind of the object.
func (o *Object) Kind() string { return o.kind }

// Number identifies the object. Objects that were made later have larger numbers.
func (o *Object) Number() uint64 { return o.number }

// Frames returns the stack of the code that made the object, innermost frame first.
func (o *Object) Frames() []runtime.Frame {
	var all []runtime.Frame
	frames := runtime.CallersFrames(o.stack[:o.frames])
	for {
		f, more := frames.Next()
		if f.PC != 0 {
			all = append(all, f)
		}
		if !more {
			return all
		}
	}
}

// Objects returns the traced objects that are alive, the oldest first.
func Objects() []*Object {
	objects.Lock()
	list := make([]*Object, 0, len(objects.live))
	for o := range objects.live {
		list = append(list, o)
	}
	objects.Unlock()
	slices.SortFunc(list, func(a, b *Object) int { return cmp.Compare(a.number, b.number) })
	return list
}
