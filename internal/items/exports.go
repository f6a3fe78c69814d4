package items

import (
	"context"
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// exports are the exported streams of a reader.
type exports struct {
	mu       sync.Mutex
	held     int           // streams that their consumers have not released
	released chan struct{} // closed when held becomes zero; nil before the first export
	why      error         // how the stream ended that was released last
}

// Exported counts a stream.
func (e *exports) Exported() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held == 0 {
		e.released = make(chan struct{})
	}
	e.held++
}

// StreamReleased ends the count of a stream, which ended with why.
func (e *exports) StreamReleased(why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.why = why
	if e.held--; e.held == 0 {
		close(e.released)
	}
}

// WaitReleased waits until the consumers have released all streams, and returns how the last one ended.
func (e *exports) WaitReleased(ctx context.Context) error {
	if err := fielderr.CheckContext(fielderr.OpWait, ctx); err != nil {
		return err
	}
	e.mu.Lock()
	released := e.released
	e.mu.Unlock()
	if released == nil {
		return fmt.Errorf("cdevice: wait: the reader was not exported: %w", arrow.ErrInvalid)
	}
	if !IsClosed(released) { // even if ctx is done
		select {
		case <-released:
		case <-ctx.Done():
			return fielderr.ContextError(ctx, fielderr.OpWait)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}

// Ended returns how the stream ended for a consumer that has released it: nil at its end, or an error, that of a release before the end too.
func (r *Reader[T]) Ended() error {
	end := r.end.Load()
	if end == nil {
		return fmt.Errorf("cdevice: the consumer released the stream before its end: %w", context.Canceled)
	}
	return r.Err()
}
