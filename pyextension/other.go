//go:build cgo && !unix

package pyextension

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
)

// The C side of the package needs a Unix. A program builds all the same, and [Check] says that Python cannot call its functions.

// Option describes a function to Python.
type Option func(*function) error

type function struct{}

func noOption(*function) error { return nil }

// WithParams names the parameters of the function.
func WithParams(names ...string) Option { return noOption }

// WithDefault makes a parameter optional.
func WithDefault(param string, value any) Option { return noOption }

// WithDoc sets the text that help() shows in Python.
func WithDoc(text string) Option { return noOption }

var failed struct {
	mu  sync.Mutex
	err error
}

// Func notes for [Check] that functions cannot be registered on this system.
func Func(name string, f any, opts ...Option) {
	failed.mu.Lock()
	defer failed.mu.Unlock()
	failed.err = errors.Join(failed.err, fmt.Errorf("pyextension.Func %q: on %s: %w", name, runtime.GOOS, device.ErrNotSupported))
}

// Check returns an error for each call of [Func], which wraps device.ErrNotSupported.
func Check() error {
	failed.mu.Lock()
	defer failed.mu.Unlock()
	return failed.err
}
