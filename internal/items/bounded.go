package items

import (
	"context"
	"io"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Bounded is a source that ends with a context: once that is done, it returns no item, even if one
// is ready, and a wait ends, if the source below can end it.
type Bounded[T Counted] struct {
	ctx  context.Context
	op   string
	from Source[T]
	stop func() bool // stops watching the context; nil until the first Next
}

// NewBounded returns a source that ends with ctx. Its error names the operation op.
func NewBounded[T Counted](ctx context.Context, op string, from Source[T]) *Bounded[T] {
	return &Bounded[T]{ctx: ctx, op: op, from: from}
}

// under puts a source on top of the one below, under the same context.
func (b *Bounded[T]) under(on func(Source[T]) Source[T]) *Bounded[T] {
	if b.stop != nil {
		b.stop()
	}
	return NewBounded(b.ctx, b.op, on(b.from))
}

// Next returns the next item of the source below, or the context's error.
func (b *Bounded[T]) Next() (item T, err error) {
	if err := fielderr.ContextError(b.ctx, b.op); err != nil {
		return item, err
	}
	if b.stop == nil {
		b.stop = context.AfterFunc(b.ctx, b.from.Interrupt)
	}
	item, err = b.from.Next()
	if err == io.EOF {
		return item, err
	}
	if ended := fielderr.ContextError(b.ctx, b.op); ended != nil {
		if err == nil {
			drop(item)
		}
		var none T
		return none, ended
	}
	return item, err
}

// Interrupt interrupts the source below.
func (b *Bounded[T]) Interrupt() { b.from.Interrupt() }

// Close stops watching the context, and closes the source below.
func (b *Bounded[T]) Close(done func()) {
	if b.stop != nil {
		b.stop()
	}
	b.from.Close(done)
}
