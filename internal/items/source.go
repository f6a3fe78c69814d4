package items

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// Source produces the items of a reader.
type Source[T any] interface {
	// Next returns the next item, owned by the caller, or an error: io.EOF at the end. It is called
	// by one goroutine at a time, and not again after an error.
	Next() (T, error)
	// Interrupt ends the wait of a running Next, if the source can: no item is needed any more. It
	// does not block. Any goroutine may call it, at any time.
	Interrupt()
	// Close ends the source. It is called once, when no Next is running. It calls done once, on any
	// goroutine, when the resources of the source are no longer in use, before Close returns or
	// long after: even if a program's code panics or ends its goroutine.
	Close(done func())
}

// Counted is a *RecordBatch or an *Array.
type Counted interface {
	comparable
	Retain()
	Release()
}

// Result holds the results of a call of Next.
type Result[T Counted] struct {
	Item T
	Err  error
}

// Drop releases the item, if there is one.
func (p *Result[T]) Drop() {
	if p.Err == nil {
		drop(p.Item)
	}
}

// NoItemAtEnd turns io.EOF beside an item into an error: the stream must not end without that item.
func NoItemAtEnd[T Counted](item T, err error) error {
	var none T
	if err == io.EOF && item != none {
		return fmt.Errorf("cdevice: read: the source returned an item with io.EOF: %w", arrow.ErrInvalid)
	}
	return err
}

// drop releases an item that was not delivered. A panic there is reported to bridge.OnPanic.
func drop[T Counted](item T) {
	defer tellPanic()
	item.Release()
}

// Function is a source that calls a function.
type Function[T Counted] struct {
	Ask   func() (T, error)
	Check func(T) error // checks an item of a program's function; nil: not
	Stop  func()        // may be nil
	// StopThen is for a stop that may end after it has returned: it calls done at its end.
	StopThen func(done func())
}

// Next calls Ask, and checks the item.
func (f *Function[T]) Next() (T, error) { return f.Checked(f.Ask()) }

// Checked returns what Ask has returned, if it is right, and takes the reference to the item.
func (f *Function[T]) Checked(item T, err error) (T, error) {
	var none T
	done := false
	defer func() { // even if Check panics: types may be a program's
		if !done && item != none {
			item.Release()
		}
	}()
	if err != nil {
		return none, NoItemAtEnd(item, err)
	}
	if f.Check != nil {
		if err := f.Check(item); err != nil {
			done = errors.Is(err, fielderr.ErrReleased) // there is no reference to drop
			return none, err
		}
	}
	done = true
	return item, nil
}

// Interrupt does nothing: a function cannot be interrupted.
func (*Function[T]) Interrupt() {}

// Close calls Stop or StopThen.
func (f *Function[T]) Close(done func()) {
	if f.StopThen != nil {
		f.StopThen(done)
		return
	}
	defer done()
	if f.Stop != nil {
		f.Stop()
	}
}
