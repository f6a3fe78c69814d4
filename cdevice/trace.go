package cdevice

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/arrowdevice/arrowdevice/internal/callsite"
	"github.com/arrowdevice/arrowdevice/internal/live"
)

// TraceObjects switches tracing on or off, and returns whether it was on. While it is on, each object of this
// package that has to be released records the stack of the code that made it. [LiveObjects] lists the
// objects, to find a missing release; CheckLeaks of package cdevicetest does so at the end of a test.
// The environment variable CDEVICE_TRACE=1 switches tracing on from the start.
//
// Only objects that are made afterwards are traced. Off, which is the default, tracing costs an atomic
// load per object; on, some microseconds and half a kilobyte.
func TraceObjects(on bool) (before bool) { return live.Trace(on) }

// LiveObject is an object that was made while [TraceObjects] was on and is not released: batches,
// arrays, readers and host views that this program holds, structs that a consumer holds, and
// streams of a producer.
type LiveObject struct {
	// Kind names the object: RecordBatch, Array, RecordReader, ArrayReader, HostView,
	// HostReader, AsyncStream, or "exported ", "imported " and the name of a C struct.
	Kind string
	// Number identifies the object. Objects that were made later have larger numbers.
	Number uint64
	// Stack is the stack of the code that made the object: it begins with a function of this
	// package, and the caller's code follows.
	Stack []runtime.Frame
}

// String returns the kind and the line of the program, "RecordBatch, made at main.load (load.go:14), in cdevice.CopyToDevice:",
// and the stack, in the form of a goroutine's stack trace. Objects that were made by one line of a loop have the
// same text.
func (o LiveObject) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, made at %s:\n", o.Kind, callsite.Of(iterate(o.Stack)))
	for _, f := range o.Stack {
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return b.String()
}

func iterate(frames []runtime.Frame) (next func() (runtime.Frame, bool)) {
	return func() (f runtime.Frame, more bool) {
		if len(frames) > 0 {
			f, frames = frames[0], frames[1:]
		}
		return f, len(frames) > 0
	}
}

// LiveObjects returns the objects that were made while [TraceObjects] was on and are not released,
// the oldest first. An object that the garbage collector took without a release is among them.
func LiveObjects() []LiveObject {
	objects := live.Objects()
	list := make([]LiveObject, len(objects))
	for i, o := range objects {
		list[i] = LiveObject{Kind: o.Kind(), Number: o.Number(), Stack: withoutInternals(o.Frames())}
	}
	return list
}

// withoutInternals leaves out the frames that keep the list.
func withoutInternals(frames []runtime.Frame) []runtime.Frame {
	for i, f := range frames {
		if !slices.ContainsFunc(listKeepers, func(name string) bool { return strings.Contains(f.Function, name) }) {
			return frames[i:]
		}
	}
	return nil
}

var listKeepers = []string{"/internal/live.", "/internal/refcount.", "/internal/schema."}
