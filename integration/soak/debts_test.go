package soak

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// debts are callbacks that the library has to call, exactly once each.
type debts struct {
	mu   sync.Mutex
	open map[*debt]struct{}
	made int
}

type debt struct {
	what  string
	calls atomic.Int32
}

// owe returns a callback that must be called once, and that calls do.
func (w *worker) owe(what string, do func()) func() {
	d := &debt{what: fmt.Sprintf("%s of goroutine %d, round %d", what, w.number, w.rounds)}
	c := w.crew
	c.debts.add(d)
	return func() {
		if n := d.calls.Add(1); n != 1 {
			c.fail(fmt.Sprintf("%s was called %d times", d.what, n))
			return
		}
		defer c.debts.remove(d) // a callback that panics has been called
		do()
	}
}

func (d *debts) add(one *debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[*debt]struct{}{}
	}
	d.open[one] = struct{}{}
	d.made++
}

func (d *debts) remove(one *debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, one)
}

func (d *debts) left() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

// names are those of callbacks that were not called.
func (d *debts) names() (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for one := range d.open {
		names = append(names, one.what)
	}
	slices.Sort(names)
	return names[:min(len(names), 10)]
}
