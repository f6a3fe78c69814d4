package items

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// mapped is the source of the results of a program's function on the items of another source.
type mapped[T Counted] struct {
	from Source[T]
	r    *Reader[T] // whose Fit is applied to an item before f, and Check to the result of f
	f    func(T) (T, error)
}

// Next calls f with the next item, and releases that afterwards, unless f returned it.
func (m *mapped[T]) Next() (T, error) {
	item, err := m.from.Next()
	if err != nil {
		return item, err
	}
	if m.r.Fit != nil {
		item = m.r.Fit(item)
	}
	return m.r.Apply(item, m.f)
}

// Apply returns the result of f on an item, whose reference it takes, as an item of r.
func (r *Reader[T]) Apply(item T, f func(T) (T, error)) (T, error) {
	var made, none T
	taken := false
	r.Count(item).Own()
	defer func() { // even if f or the check panics, or ends the goroutine
		r.Count(item).Disown()
		if !taken || made != item {
			drop(item)
		}
		if !taken && made != item && made != none && r.Count(made).Alive() { // f may have released it
			drop(made)
		}
	}()
	var err error
	made, err = f(item)
	if err != nil {
		return none, noEnd(err)
	}
	if made == none {
		return none, fmt.Errorf("cdevice: read: the function of Map returned nil without an error: %w", arrow.ErrInvalid)
	}
	if err := r.Check(made); err != nil {
		return none, err
	}
	taken = true
	return made, nil
}

// noEnd turns io.EOF into an error: only the source may end the stream without one.
func noEnd(err error) error {
	if err == io.EOF {
		return fmt.Errorf("cdevice: read: the function of Map returned: %w", err)
	}
	return err
}

// Interrupt interrupts the source below.
func (m *mapped[T]) Interrupt() { m.from.Interrupt() }

// Close closes the source below.
func (m *mapped[T]) Close(done func()) { m.from.Close(done) }

// Map replaces the items by the results of f. A nil f ends the stream with an error.
func (r *Reader[T]) Map(f func(T) (T, error)) {
	if f == nil {
		if !r.Over.Load() {
			r.endWith(fielderr.Absent(fielderr.OpRead, "f", "a function"))
		}
		return
	}
	r.add(func(from Source[T]) Source[T] { return &mapped[T]{from, r, f} })
}
