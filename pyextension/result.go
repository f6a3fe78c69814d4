//go:build cgo && unix

package pyextension

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// results takes the results of a function over and gives them handles.
type results struct {
	scope    *scope
	objects  []*object
	exported []exportedStruct
	settle   func(taken bool) // called once, when the reply is taken or discarded; nil is nothing
	failed   bool             // the function returned an error beside them: they are discarded
	depth    int              // of the values of type any around the one that is converted
}

// maxDepth is how deep lists and dicts of type any may be nested: one that contains itself has no end.
const maxDepth = 200

// issue gives an object a handle, which belongs to the reply.
func (r *results) issue(o *object) *object {
	r.objects = append(r.objects, o.issue())
	return o
}

// discard drops the objects of a reply that Python does not fetch.
func (r *results) discard() {
	r.settled(false)
	for _, o := range r.objects {
		release(o.handle)
	}
	for _, e := range r.exported {
		e.free()
	}
	r.objects, r.exported = nil, nil
}

// settled calls settle, the first time.
func (r *results) settled(taken bool) {
	if settle := r.settle; settle != nil {
		r.settle = nil
		settle(taken)
	}
}

// own makes a reference of the caller's own: a result that is also an argument is borrowed.
func own[T interface{ Retain() }](r *results, v T) T {
	if slices.Contains(r.scope.borrowed, any(v)) {
		v.Retain()
	}
	return v
}

func (r *results) recordReader(v *cdevice.RecordReader) (*object, error) {
	return r.stream(own(r, v))
}

// stream takes a reader over. If it failed before it had a schema, its error is that of the call.
func (r *results) stream(v *cdevice.RecordReader) (*object, error) {
	if v.Schema() == nil {
		defer v.Release()
		return nil, v.Err()
	}
	return &object{kind: kindReader, reader: newReader(v, r.scope)}, nil
}

// errReleasedResult is the error for a result that the function has released, as "defer b.Release()" does.
var errReleasedResult = fmt.Errorf("%w: the function gives its result to the caller, and must not release it", cdevice.ErrReleased)

// isReleased reports whether v has no reference.
func isReleased(v interface {
	Retain()
	Release()
}) (released bool) {
	defer func() { released = recover() != nil }()
	v.Retain()
	v.Release()
	return false
}

func (r *results) recordBatch(v *cdevice.RecordBatch) (*object, error) {
	if isReleased(v) {
		return nil, errReleasedResult
	}
	return &object{kind: kindBatch, batch: own(r, v)}, nil
}

func (r *results) anArray(v *cdevice.Array) (*object, error) {
	if isReleased(v) {
		return nil, errReleasedResult
	}
	return &object{kind: kindArray, array: own(r, v)}, nil
}

func (r *results) aSchema(v *arrow.Schema) (*object, error) {
	return &object{kind: kindSchema, schema: v}, nil
}

func (r *results) hostReader(v array.RecordReader) (*object, error) {
	if slices.Contains(r.scope.borrowed, any(v)) {
		v.Retain()
		return r.wrapped(v)
	}
	return r.wrapped(pulling{v})
}

// wrapped takes a reader over.
func (r *results) wrapped(v array.RecordReader) (*object, error) {
	defer v.Release()
	rdr, err := cdevice.WrapRecordReader(v, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	return r.stream(rdr)
}

// pulling is a reader of a program, which may hold one of array.ReaderFromIter: read by a thread of Python, that ends the process.
type pulling struct{ array.RecordReader }

// UsesIterPull makes package cdevice read and release the reader on a goroutine.
func (pulling) UsesIterPull() {}

func (r *results) hostBatch(v arrow.RecordBatch) (*object, error) {
	b, err := wrapped(own(r, v))
	if err != nil {
		return nil, err
	}
	return &object{kind: kindBatch, batch: b}, nil
}

func (r *results) hostArray(v arrow.Array) (*object, error) {
	a, err := wrappedArray(own(r, v))
	if err != nil {
		return nil, err
	}
	return &object{kind: kindArray, array: a}, nil
}

func (r *results) table(v arrow.Table) (*object, error) {
	own(r, v)
	defer v.Release()
	return r.wrapped(array.NewTableReader(v, -1))
}

// any converts a result of type any by the type that it has.
func (r *results) any(v reflect.Value) (any, error) {
	if v.IsNil() {
		return nil, nil
	}
	if r.depth++; r.depth > maxDepth {
		return nil, valueErrorf("a result is nested more than %d deep, or contains itself", maxDepth)
	}
	defer func() { r.depth-- }()
	v = v.Elem()
	t := v.Type()
	if c := arrowConverters[t]; c != nil {
		return c.to(r, v)
	}
	for abstract, c := range arrowConverters {
		if abstract.Kind() == reflect.Interface && t.Implements(abstract) {
			return c.to(r, v.Convert(abstract))
		}
	}
	c, err := converterOf(t)
	if err != nil {
		return nil, typeErrorf("a result of %s", err)
	}
	return c.to(r, v)
}

// sortedKeys returns the keys of a map: an order of its own would differ from call to call.
func sortedKeys(m reflect.Value) []reflect.Value {
	keys := m.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return keys
}
