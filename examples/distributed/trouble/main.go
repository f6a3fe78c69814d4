// Command trouble has functions for the tests of examples/distributed that do what no step should.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/pyextension"
)

func main() {} // Python calls the functions

func init() {
	pyextension.Func("addresses", addresses, pyextension.WithParams("orders"))
	pyextension.Func("fail", fail, pyextension.WithParams("text"))
	pyextension.Func("panic_with", panicWith, pyextension.WithParams("text"))
	pyextension.Func("meet", meet, pyextension.WithParams("callers"))
	pyextension.Func("waiting", func() int {
		mu.Lock()
		defer mu.Unlock()
		return waiting
	})
}

// addresses returns where the prices of each batch are.
func addresses(orders array.RecordReader) []uint64 {
	var all []uint64
	for orders.Next() {
		at := orders.Schema().FieldIndices("cents")[0]
		values := orders.RecordBatch().Column(at).(*array.Int64).Values()
		all = append(all, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(values)))))
	}
	return all
}

func fail(text string) error { return errors.New(text) }

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
