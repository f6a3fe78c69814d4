package gpu

import (
	"context"
	"sync"
)

// trims are the functions that give memory back when the driver has none left.
type trims struct {
	mu   sync.Mutex
	list []func()
	// turn is held while they run; it has room for one.
	turn chan struct{}
}

func (t *trims) add(trim func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = append(t.list, trim)
}

// run calls the functions, and returns when they have returned or ctx is done.
func (t *trims) run(ctx context.Context, g *guard) error {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	list := t.list[:len(t.list):len(t.list)]
	t.mu.Unlock()
	left := make(chan struct{})
	go func() {
		defer close(left)
		defer func() { <-t.turn }()
		for _, trim := range list {
			g.call(trim, func() {})
		}
	}()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
