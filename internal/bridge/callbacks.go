package bridge

// #include <stdint.h>
import "C"

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/internal/handle"
)

// OnPanic is told of a panic in Go code that cannot report an error: code that C called, or
// that runs on a goroutine of its own. The default prints it, with its stack, to standard
// error: the caller goes on, as if the code had returned.
var OnPanic = func(v any, stack []byte) {
	fmt.Fprintf(os.Stderr, "cdevice: panic that no caller can be told of: %v\n%s", v, stack)
}

// guard runs the body of a callback. A panic ends here and never crosses into C.
func guard(body func()) {
	if counted.Load() {
		callbacks.Add(1)
	}
	defer func() {
		if v := recover(); v != nil {
			OnPanic(v, debug.Stack())
		}
	}()
	body()
}

var (
	counted   atomic.Bool
	callbacks atomic.Int64
)

// CountCallbacks makes Callbacks count, for tests. Programs do without: threads that all
// change one count wait for each other.
func CountCallbacks() { counted.Store(true) }

// Callbacks is how often C has called into Go since CountCallbacks.
func Callbacks() int64 { return callbacks.Load() }

//export cdevice_v0_go_release
func cdevice_v0_go_release(word C.uint64_t) {
	guard(func() {
		if v := handle.Take(handle.Word(word)); v != nil {
			v.Release()
		}
	})
}
