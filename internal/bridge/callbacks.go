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

// OnPanic is called for a panic in Go code that cannot return an error: code that C called, or that
// runs on a goroutine of its own. The default prints the panic and its stack to standard error. The
// caller continues as if the code had returned.
var OnPanic = func(v any, stack []byte) {
	fmt.Fprintf(os.Stderr, "cdevice: panic that no caller can be told of: %v\n%s", v, stack)
}

// guard runs the body of a callback. A panic ends here and never crosses into C.
func guard(body func()) {
	if counted.Load() {
		callbacks.Add(1)
	}
	contain(body)
}

// contain runs code whose panics OnPanic gets.
func contain(body func()) {
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

// CountCallbacks makes Callbacks count, for tests. It is off in programs, since threads contend for
// a shared counter.
func CountCallbacks() { counted.Store(true) }

// Callbacks returns how often C has called into Go since CountCallbacks.
func Callbacks() int64 { return callbacks.Load() }

//export cdevice_v0_go_release
func cdevice_v0_go_release(word C.uint64_t) {
	guard(func() { end(handle.Word(word)) })
}

// end releases the value of a handle, unless it was taken before.
func end(word handle.Word) {
	ordered()
	if v := handle.Take(word); v != nil {
		v.Release()
	}
}
