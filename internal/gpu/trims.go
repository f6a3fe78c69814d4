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

// OnTrim registers trim, which frees cached memory of this GPU, for as long as the process lives:
// [GPU.Trim] calls it, and so does an allocation that finds no memory. It is called on a
// goroutine of its own, and should not wait: Trim waits for it until its context ends, an
// allocation for at most two seconds. A panic of it is logged.
func (h *Heap) OnTrim(trim func()) { h.trims.add(trim) }

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
