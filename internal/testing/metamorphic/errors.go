package metamorphic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// sentinels are the errors that programs ask for.
var sentinels = []struct {
	name string
	err  error
}{
	{"ErrReleased", cdevice.ErrReleased},
	{"ErrNotSupported", device.ErrNotSupported},
	{"ErrInvalid", arrow.ErrInvalid},
	{"ErrNotImplemented", arrow.ErrNotImplemented},
	{"Canceled", context.Canceled},
	{"DeadlineExceeded", context.DeadlineExceeded},
	{"ErrUnexpectedEOF", io.ErrUnexpectedEOF},
}

func is(err, target error) bool { return errors.Is(err, target) }

func asError[T error](err error, target *T) bool { return errors.As(err, target) }

// hasStack reports whether an error is that of a panic.
func hasStack(err error) bool {
	var panicked interface{ Stack() []byte }
	return errors.As(err, &panicked)
}

// failed is the errorText of an error that wraps sentinels.
func failed(names ...string) string { return "error: " + strings.Join(names, " ") }

// panicText describes a panic by the error that it wraps.
func panicText(f func()) (got string) {
	defer func() {
		switch v := recover().(type) {
		case nil:
			got = "no panic"
		case error:
			got = "panic " + errorText(v)
		default:
			got = "another panic"
		}
	}()
	f()
	return ""
}

func becomes(limit time.Duration, done func() bool) bool { return within.Becomes(limit, done) }

func stacks() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return b.String()
}

// ptr is the address of Go memory that a device copies to or from.
func ptr(b []byte) device.Ptr { return device.Ptr(heap.AddressOf(b)) }
