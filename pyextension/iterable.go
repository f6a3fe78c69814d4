//go:build cgo && unix

package pyextension

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

// iterable is an iterable of Python as the source of a reader. Each item is a batch, or a stream of some.
type iterable struct {
	source  capi.Source
	running atomic.Uint64 // the thread that runs code of the source, or 0
	items   int           // that were read
	inner   *cdevice.RecordReader
	schema  *arrow.Schema
	device  device.Type

	mu     sync.Mutex
	scope  *scope       // of what was imported for inner, or nil
	failed *sourceError // whose exception is dropped with the scope of the call: a reader may end before its error is asked for
	over   bool         // that scope has ended
}

// newIterable makes a reader of a source, which it takes over. It reads the first item for the schema.
func newIterable(source capi.Source, sc *scope) (*cdevice.RecordReader, error) {
	it := &iterable{source: source}
	first, err := it.next()
	sc.sources = append(sc.sources, it)
	if err != nil && err != io.EOF {
		it.release()
		return nil, err
	}
	var rest []*cdevice.RecordBatch
	if first != nil {
		rest = append(rest, first)
		it.schema, it.device = first.Schema(), first.DeviceID().Type
	} else {
		it.device = device.CPU
	}
	r, err := cdevice.NewRecordReaderFunc(context.Background(), it.schema, it.device, func(context.Context) (*cdevice.RecordBatch, error) {
		if b, err := takeFirst(&rest); err == nil {
			return b, nil
		}
		return it.checked()
	}, func() {
		releaseAll(rest)
		it.release()
	})
	if err != nil {
		releaseAll(rest)
		it.release()
	}
	return r, err
}

// checked is next of a batch after the first one, whose schema and device it must have: its buffers would be misread.
func (it *iterable) checked() (*cdevice.RecordBatch, error) {
	b, err := it.next()
	if err != nil {
		return nil, err
	}
	if text := difference(b.Schema(), it.schema); text != "" {
		b.Release()
		return nil, valueErrorf("source[%d]: has another schema than the first batch: %s", it.items-1, text)
	}
	if got := b.DeviceID().Type; got != it.device {
		b.Release()
		return nil, valueErrorf("source[%d]: is in memory of %s, and the first batch of %s", it.items-1, got, it.device)
	}
	return b, nil
}

// difference is the first one of the types and names of two schemas, or "".
func difference(got, want *arrow.Schema) string {
	if got.NumFields() != want.NumFields() {
		return fmt.Sprintf("it has %d fields, not %d", got.NumFields(), want.NumFields())
	}
	for i, g := range got.Fields() {
		w := want.Field(i)
		if g.Name != w.Name {
			return fmt.Sprintf("field %d has the name %q, not %q", i, g.Name, w.Name)
		}
		if !arrow.TypeEqual(g.Type, w.Type) {
			return fmt.Sprintf("field %q has the type %s, not %s", w.Name, g.Type, w.Type)
		}
	}
	return ""
}

// next returns the next batch, owned by the caller, or io.EOF.
func (it *iterable) next() (*cdevice.RecordBatch, error) {
	for {
		if it.inner != nil {
			if it.inner.Next() {
				b := it.inner.RecordBatch()
				b.Retain()
				return b, nil
			}
			err := it.inner.Err()
			it.endItem()
			if err != nil {
				return nil, about(fmt.Sprintf("source[%d]", it.items-1), err)
			}
		}
		b, err := it.nextItem()
		if b != nil || err != nil {
			return b, err
		}
	}
}

// nextItem returns the next item if it is a batch. If it is a stream, inner is that. A schema is that of a source without items.
func (it *iterable) nextItem() (*cdevice.RecordBatch, error) {
	item := it.source.Next(&it.running)
	switch {
	case item.Failed && item.Code == syscall.ECANCELED:
		return nil, errEnded
	case item.Failed && item.Exception == 0:
		return nil, errInterrupted
	case item.Failed:
		return nil, it.fail(item)
	case len(item.Encoded) == 0:
		return nil, io.EOF
	}
	d := newRequest(item.Encoded)
	defer d.discard()
	if _, err := d.value(); err != nil {
		return nil, err
	}
	s := d.sources[0]
	if s.form == formSchema {
		var err error
		if it.schema, err = s.aSchema(); err == nil {
			err = io.EOF
		}
		return nil, err
	}
	it.items++
	b, err := it.take(s)
	if err != nil {
		it.endItem()
		return nil, about(fmt.Sprintf("source[%d]", it.items-1), err)
	}
	return b, nil
}

var errEnded = fmt.Errorf("the interpreter of the source has ended: %w", syscall.ECANCELED)

// take imports an item.
func (it *iterable) take(s *source) (*cdevice.RecordBatch, error) {
	sc := newScope()
	if s.isStream() {
		r, err := s.recordReader(sc)
		it.setScope(sc) // others read it from now on
		if err == nil {
			r.Retain()
			it.inner = r
		}
		return nil, err
	}
	defer sc.close()
	b, err := s.recordBatch(sc)
	if err == nil {
		b.Retain()
	}
	return b, err
}

func (s *source) isStream() bool {
	return s.form == formStream || s.form == formDeviceStream || s.form == formObject && s.object.kind == kindReader
}

func (it *iterable) endItem() {
	if it.inner != nil {
		it.inner.Release()
		it.inner = nil
	}
	if ended := it.setScope(nil); ended != nil {
		ended.close()
	}
}

// setScope replaces the scope of the item, and returns the one before.
func (it *iterable) setScope(s *scope) *scope {
	it.mu.Lock()
	defer it.mu.Unlock()
	before := it.scope
	it.scope = s
	return before
}

// runsOn reports whether code of the source, or of one that an item of it depends on, runs on a thread.
func (it *iterable) runsOn(thread uint64) bool {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.running.Load() == thread || it.scope != nil && it.scope.waitsFor(thread)
}

func (it *iterable) release() {
	it.endItem()
	it.source.Release()
}

func (it *iterable) fail(item capi.Item) *sourceError {
	err := &sourceError{text: item.Text, code: item.Code}
	err.exception.Store(item.Exception)
	it.mu.Lock()
	it.failed = err
	over := it.over
	it.mu.Unlock()
	if over {
		err.drop() // without the lock, as it waits for the GIL and may run Python code
	}
	return err
}

// forget drops the exception that the source has raised or will raise, unless it was taken.
func (it *iterable) forget() {
	it.mu.Lock()
	it.over = true
	failed := it.failed
	it.mu.Unlock()
	if failed != nil {
		failed.drop()
	}
}

// drop drops the exception, unless it was taken.
func (e *sourceError) drop() {
	if exception := e.take(); exception != 0 {
		capi.DropPythonObject(exception)
	}
}
