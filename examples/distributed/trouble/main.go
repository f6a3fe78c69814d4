// Command trouble has functions for the tests of examples/distributed that do what no step should.
package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/arrowdevice/arrowdevice/pyextension"
)

func main() {} // Python calls the functions

func init() {
	pyextension.Func("panic_with", panicWith, pyextension.WithParams("text"))
	pyextension.Func("meet", meet, pyextension.WithParams("callers"))
	pyextension.Func("waiting", func() int {
		mu.Lock()
		defer mu.Unlock()
		return waiting
	})
}

func panicWith(text string) { panic(text) }

var (
	mu      sync.Mutex
	waiting int
	met     = make(chan struct{})
)

// meet returns when so many callers of this process are in it at the same time.
func meet(ctx context.Context, callers int) error {
	mu.Lock()
	together := met
	if waiting++; waiting == callers {
		waiting, met = 0, make(chan struct{})
		close(together)
	}
	mu.Unlock()
	select {
	case <-together:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %d callers: %w", callers, ctx.Err())
	}
}
