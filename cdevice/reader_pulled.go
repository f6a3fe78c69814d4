package cdevice

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// Some readers use iter.Pull. The runtime ends the process where its coroutine is resumed under another lock of goroutine
// and thread than it was made under. Only the runtime knows that lock, so a reader counts as made where it is wrapped.

// usesPull reports whether a reader is one of array.ReaderFromIter, or says that it uses iter.Pull.
func usesPull(rdr array.RecordReader) bool {
	if reflect.TypeOf(rdr) == pulledReader() {
		return true
	}
	_, says := rdr.(interface{ UsesIterPull() })
	return says
}

// pulledReader is the type of the readers of array.ReaderFromIter.
var pulledReader = sync.OnceValue(func() reflect.Type {
	r := array.ReaderFromIter(arrow.NewSchema(nil, nil), func(func(arrow.RecordBatch, error) bool) {})
	defer r.Release()
	return reflect.TypeOf(r)
})

// pulled returns the source of a reader that uses iter.Pull.
func (w *wrappedSource) pulled() items.Source[*RecordBatch] {
	lock := bridge.CurrentThreadLock()
	if lock == (bridge.ThreadLock{}) { // any goroutine that is not locked may read it
		return &items.Sequence[*RecordBatch]{Seq: w.yield, Check: w.Check, Unused: w.rdr.Release}
	}
	readersToRelease.releaseOf(lock)
	p := &lockedSource{rdr: w.rdr, from: w, lock: lock}
	p.Function = items.Function[*RecordBatch]{Ask: p.ask, Stop: p.stop, Check: w.Check}
	return p
}

// yield is the iterator of the batches. It releases the reader.
func (w *wrappedSource) yield(yield func(*RecordBatch, error) bool) {
	defer w.rdr.Release()
	for more := true; more; {
		b, err := w.next()
		more = yield(b, err) && err == nil
		if err == nil {
			b.Release()
		}
	}
}

// lockedSource reads a reader that was made on a goroutine that was locked to its thread: there only.
type lockedSource struct {
	items.Function[*RecordBatch]
	rdr  array.RecordReader
	from *wrappedSource
	lock bridge.ThreadLock
}

var errReadElsewhere = fielderr.New(fielderr.OpRead, "RecordReader", nil, nil, fmt.Errorf("it uses iter.Pull, as those of array.ReaderFromIter "+
	"do, and was made in a callback from C or on a locked thread; only code there can read it: make it with cdevice.NewRecordReader: %w", arrow.ErrInvalid))

func (p *lockedSource) ask() (*RecordBatch, error) {
	if bridge.CurrentThreadLock() != p.lock {
		return nil, errReadElsewhere
	}
	return p.from.next()
}

// stop releases the reader, which may resume the iterator.
func (p *lockedSource) stop() {
	if bridge.CurrentThreadLock() != p.lock {
		readersToRelease.add(p.lock, p.rdr)
		return
	}
	p.rdr.Release()
}

// readersToRelease are readers of streams that ended where their iterators cannot be resumed. They are released when another
// reader is wrapped where they were: nothing else is known to run there. Those of a thread that has ended stay.
var readersToRelease unreleased

type unreleased struct {
	mu     sync.Mutex
	byLock map[bridge.ThreadLock][]array.RecordReader
}

func (u *unreleased) add(lock bridge.ThreadLock, rdr array.RecordReader) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byLock == nil {
		u.byLock = map[bridge.ThreadLock][]array.RecordReader{}
	}
	u.byLock[lock] = append(u.byLock[lock], rdr)
}

func (u *unreleased) releaseOf(lock bridge.ThreadLock) {
	u.mu.Lock()
	readers := u.byLock[lock]
	delete(u.byLock, lock)
	u.mu.Unlock()
	for _, rdr := range readers {
		items.Quietly(rdr.Release)
	}
}
