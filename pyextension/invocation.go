//go:build cgo && unix

package pyextension

import (
	"github.com/arrowdevice/arrowdevice/cdevice"
)

// invocation is a call of a built-in function.
type invocation struct {
	scope   *scope
	results *results
	args    []any
}

// argument returns an argument, which must be a T.
func argument[T any](in *invocation, i int) (v T, err error) {
	if i >= len(in.args) {
		return v, typeErrorf("argument %d is missing", i)
	}
	v, ok := in.args[i].(T)
	if !ok {
		return v, typeErrorf("argument %d is %s, not %T", i, pythonType(in.args[i]), v)
	}
	return v, nil
}

// object returns the object that the call is about. It stays valid until the end of the call.
func (in *invocation) object() (*object, error) {
	s, err := argument[*source](in, 0)
	if err != nil {
		return nil, err
	}
	if s.object == nil && s.err == nil {
		return nil, typeErrorf("an object of this library is wanted")
	}
	return s.object, s.err
}

// ofObject returns the built-in function for a function of its first argument.
func ofObject(f func(*invocation, *object) (any, error)) func(*invocation) (any, error) {
	return func(in *invocation) (any, error) {
		o, err := in.object()
		if err != nil {
			return nil, err
		}
		return f(in, o)
	}
}

// ofArray is ofObject for arrays.
func ofArray(f func(*invocation, *cdevice.Array) (any, error)) func(*invocation) (any, error) {
	return ofObject(func(in *invocation, o *object) (any, error) {
		if o.kind != kindArray {
			return nil, wrongKind(kindArray, o)
		}
		return f(in, o.array)
	})
}

// ofReader is ofObject for readers. No other call reads the reader meanwhile.
func ofReader(f func(*invocation, *reader) (any, error)) func(*invocation) (any, error) {
	return ofObject(func(in *invocation, o *object) (any, error) {
		if o.kind != kindReader {
			return nil, wrongKind(kindReader, o)
		}
		if err := in.acquire(o.reader); err != nil {
			return nil, err
		}
		return f(in, o.reader)
	})
}

func (in *invocation) batch(b *cdevice.RecordBatch, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return in.results.issue(&object{kind: kindBatch, batch: b}), nil
}

func (in *invocation) array(a *cdevice.Array, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return in.results.issue(&object{kind: kindArray, array: a}), nil
}

// readerOf is the object of a new reader. The context of this call ends with it.
func (in *invocation) readerOf(r *cdevice.RecordReader, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return in.results.issue(&object{kind: kindReader, reader: newReader(r, in.scope)}), nil
}

// wrongKind says that a method is not one of an object.
func wrongKind(want kind, o *object) error {
	return typeErrorf("a %s is wanted, not a %s", want, o.kind)
}
