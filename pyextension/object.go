//go:build cgo && unix

package pyextension

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

type kind byte

const (
	kindBatch  kind = 'b'
	kindReader kind = 'r'
	kindArray  kind = 'a'
	kindSchema kind = 's'
)

func (k kind) String() string {
	return map[kind]string{kindBatch: "RecordBatch", kindReader: "RecordReader", kindArray: "Array", kindSchema: "Schema"}[k]
}

// object is the Go value behind a Python object of this library, under a handle. One of its fields is set, as its
// kind says; the object owns it.
type object struct {
	kind   kind
	handle handle.Word

	batch  *cdevice.RecordBatch
	array  *cdevice.Array
	schema *arrow.Schema
	reader *reader

	users atomic.Int64 // the handle, and each call that uses the object
}

// live counts the objects that have a handle.
var live atomic.Int64

// issue gives the object a handle.
func (o *object) issue() *object {
	o.users.Store(1)
	live.Add(1)
	o.handle = handle.New(o)
	return o
}

// use returns the object of a handle, which stays valid until its drop, even if its handle is released.
func use(w handle.Word) (*object, error) {
	if o, ok := handle.Get(w).(*object); ok {
		for n := o.users.Load(); n > 0; n = o.users.Load() {
			if o.users.CompareAndSwap(n, n+1) {
				return o, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: the object was closed", cdevice.ErrReleased)
}

// Release is the end of the handle.
func (o *object) Release() {
	live.Add(-1)
	o.drop()
}

func (o *object) drop() {
	if o.users.Add(-1) > 0 {
		return
	}
	switch o.kind {
	case kindBatch:
		o.batch.Release()
	case kindArray:
		o.array.Release()
	case kindReader:
		o.reader.release()
	}
}

func (o *object) deviceID() device.ID {
	switch o.kind {
	case kindBatch:
		return o.batch.DeviceID()
	case kindArray:
		return o.array.DeviceID()
	case kindReader:
		return device.ID{Type: o.reader.r.DeviceType(), Ordinal: device.NoOrdinal}
	}
	return device.CPUDevice().ID()
}

func (o *object) rows() int64 {
	switch o.kind {
	case kindBatch:
		return o.batch.NumRows()
	case kindArray:
		return o.array.Len()
	}
	return -1
}

// schemaOf is the schema of a batch, reader or schema.
func (o *object) schemaOf() (*arrow.Schema, error) {
	switch o.kind {
	case kindBatch:
		return o.batch.Schema(), nil
	case kindReader:
		return o.reader.r.Schema(), nil
	case kindSchema:
		return o.schema, nil
	}
	return nil, typeErrorf("an %s has a field, not a schema", o.kind)
}

// release ends a handle, if it is one. The object panics if a function has released a reference that it had passed on; a panic
// must not end the Python process, which cannot know the function.
func release(w handle.Word) {
	defer func() {
		if v := recover(); v != nil {
			fmt.Fprintf(os.Stderr, "pyextension: an object was released that Python held: panic: %v\n\n%s", v, debug.Stack())
		}
	}()
	if v := handle.Take(w); v != nil {
		v.Release()
	}
}
