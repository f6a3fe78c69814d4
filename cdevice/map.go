package cdevice

import (
	"fmt"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"io"
)

// transform makes f's results the items. Without f, the stream ends.
func (r *reader[T]) transform(f func(T) (T, error)) {
	if f == nil {
		if !r.over.Load() {
			r.endWith(fielderr.Absent(fielderr.OpRead, "f", "a function"))
		}
		return
	}
	r.add(func(from supply[T]) supply[T] { return &mapped[T]{from, r.fit, f, r.check} })
}

// mapped is the supply of what a program's function makes of the items of another one.
type mapped[T counted] struct {
	from  supply[T]
	fit   func(T) T // what an item is made before f is given it; nil: nothing
	f     func(T) (T, error)
	check func(T) error // of what f returns
}

// next lends the item to f. It gives the item back, unless f has passed it on.
func (m *mapped[T]) next() (T, error) {
	var made, none T
	item, err := m.from.next()
	if err != nil {
		return none, err
	}
	if m.fit != nil {
		item = m.fit(item)
	}
	taken := false
	defer func() { // even if f or the check panics, or ends the goroutine
		if !taken || made != item {
			drop(item)
		}
		if !taken && made != item && made != none {
			drop(made)
		}
	}()
	made, err = m.f(item)
	if err != nil {
		return none, noEnd(err)
	}
	if err := m.check(made); err != nil {
		return none, err
	}
	taken = true
	return made, nil
}

// noEnd returns an error that does not end a stream as its last item does.
func noEnd(err error) error {
	if err == io.EOF {
		return fmt.Errorf("cdevice: read: the function of Map returned: %w", err)
	}
	return err
}

func (m *mapped[T]) interrupt() { m.from.interrupt() }

func (m *mapped[T]) close(done func()) { m.from.close(done) }
