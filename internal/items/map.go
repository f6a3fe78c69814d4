package items

import (
	"fmt"
	"io"
)

// mapped is the supply of what a program's function makes of the items of another one.
type mapped[T Counted] struct {
	from  Source[T]
	fit   func(T) T // what an item is made before f is given it; nil: nothing
	f     func(T) (T, error)
	check func(T) error // of what f returns
}

// next lends the item to f. It gives the item back, unless f has passed it on.
func (m *mapped[T]) Next() (T, error) {
	var made, none T
	item, err := m.from.Next()
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

func (m *mapped[T]) Interrupt() { m.from.Interrupt() }

func (m *mapped[T]) Close(done func()) { m.from.Close(done) }
