//go:build cgo && unix

package pyextension

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// converter converts between the values of a Go type and those of requests and replies.
type converter struct {
	// python is the type as annotations of Python have it.
	python string
	// from converts an argument. The scope releases temporary objects at the end of the call.
	from func(*scope, any) (reflect.Value, error)
	// to converts a result to a value for encoder.value. It takes the reference to the result, even if it fails.
	to func(*results, reflect.Value) (any, error)
}

var (
	anyType        = reflect.TypeFor[any]()
	errorType      = reflect.TypeFor[error]()
	contextType    = reflect.TypeFor[context.Context]()
	asyncType      = reflect.TypeFor[*cdevice.AsyncStream]()
	readerType     = reflect.TypeFor[*cdevice.RecordReader]()
	hostReaderType = reflect.TypeFor[array.RecordReader]()
	readerTypes    = []reflect.Type{readerType, hostReaderType, asyncType, anyType} // those of results that may be readers
)

// arrowConverters are the types that hold Arrow data.
var arrowConverters = map[reflect.Type]*converter{
	readerType:                              arrowConverter(kindReader, (*source).recordReader, (*results).recordReader),
	reflect.TypeFor[*cdevice.RecordBatch](): arrowConverter(kindBatch, (*source).recordBatch, (*results).recordBatch),
	reflect.TypeFor[*cdevice.Array]():       arrowConverter(kindArray, (*source).anArray, (*results).anArray),
	hostReaderType:                          arrowConverter(kindReader, (*source).hostReader, (*results).hostReader),
	reflect.TypeFor[arrow.RecordBatch]():    arrowConverter(kindBatch, (*source).hostBatch, (*results).hostBatch),
	reflect.TypeFor[arrow.Array]():          arrowConverter(kindArray, (*source).hostArray, (*results).hostArray),
	reflect.TypeFor[arrow.Table]():          arrowConverter(kindReader, (*source).table, (*results).table),
	asyncType:                               {python: kindReader.String(), to: asyncResult}, // no from: Python has no protocol for them
	reflect.TypeFor[*arrow.Schema]():        arrowConverter(kindSchema, func(s *source, _ *scope) (*arrow.Schema, error) { return s.aSchema() }, (*results).aSchema),
}

// holds reports whether a type is one of those, or a list, a dict or an optional value of them.
func holds(t reflect.Type, those ...reflect.Type) bool {
	for !slices.Contains(those, t) {
		switch t.Kind() {
		case reflect.Slice, reflect.Map, reflect.Pointer:
			t = t.Elem()
		default:
			return false
		}
	}
	return true
}

// asyncResult waits for the reader of a stream; without one it ends the stream, and does not wait for the producer.
func asyncResult(r *results, v reflect.Value) (any, error) {
	if v.IsNil() {
		return nil, nil
	}
	stream := v.Interface().(*cdevice.AsyncStream)
	ctx := r.scope.context()
	if r.failed {
		ctx = endedContext
	}
	reader, err := stream.Reader(ctx)
	if err != nil {
		_ = stream.Close(endedContext)
		return nil, err
	}
	o, err := r.recordReader(reader)
	if err != nil {
		return nil, err
	}
	return r.issue(o), nil
}

var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// arrowConverter is the converter of a type that holds Arrow data. A nil result is None.
func arrowConverter[T any](k kind, from func(*source, *scope) (T, error), to func(*results, T) (*object, error)) *converter {
	return &converter{
		python: k.String(),
		from: func(sc *scope, v any) (reflect.Value, error) {
			s, ok := v.(*source)
			if !ok {
				return reflect.Value{}, wrongType(k.String(), v)
			}
			result, err := from(s, sc)
			if err == nil {
				sc.borrowed = append(sc.borrowed, result)
			}
			return reflect.ValueOf(result), err
		},
		to: func(r *results, v reflect.Value) (any, error) {
			if isNil(v) {
				return nil, nil
			}
			o, err := to(r, v.Interface().(T))
			if err != nil {
				return nil, err
			}
			return r.issue(o), nil
		},
	}
}

// isNil reports whether a pointer or an interface is nil, or an interface that holds a nil pointer.
func isNil(v reflect.Value) bool {
	if v.Kind() == reflect.Interface && v.Elem().Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v.IsNil()
}

// converterOf returns the converter of a type, or an error that names the type.
func converterOf(t reflect.Type) (*converter, error) {
	if c := arrowConverters[t]; c != nil {
		return c, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return scalar("bool", t, func(v any) (bool, bool) { b, ok := v.(bool); return b, ok }), nil
	case reflect.String:
		return scalar("str", t, func(v any) (string, bool) { s, ok := v.(string); return s, ok }), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &converter{"int", integer(t), func(_ *results, v reflect.Value) (any, error) {
			if v.CanUint() {
				return smallest(v.Uint()), nil
			}
			return v.Int(), nil
		}}, nil
	case reflect.Float32:
		c := scalar("float", t, number)
		c.from = float32Of(t, c.from)
		return c, nil
	case reflect.Float64:
		return scalar("float", t, number), nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return scalar("bytes", t, func(v any) ([]byte, bool) { b, ok := v.([]byte); return b, ok }), nil
		}
		return listConverter(t)
	case reflect.Map:
		if t.Key().Kind() == reflect.String {
			return dictConverter(t)
		}
	case reflect.Pointer:
		return optionalConverter(t)
	case reflect.Interface:
		if t == anyType {
			return &converter{"Any", fromAny, func(r *results, v reflect.Value) (any, error) { return r.any(v) }}, nil
		}
	}
	return nil, fmt.Errorf("type %s is not supported", t)
}

// scalar is the converter of a type whose underlying type is T. as returns an argument as a T, if
// it is one.
func scalar[T any](python string, t reflect.Type, as func(any) (T, bool)) *converter {
	under := reflect.TypeFor[T]()
	return &converter{
		python: python,
		from: func(_ *scope, v any) (reflect.Value, error) {
			value, ok := as(v)
			if !ok {
				return reflect.Value{}, wrongType(python, v)
			}
			if reflect.TypeOf(v) == t {
				return reflect.ValueOf(v), nil // which needs no memory
			}
			return reflect.ValueOf(value).Convert(t), nil
		},
		to: func(_ *results, v reflect.Value) (any, error) {
			return v.Convert(under).Interface(), nil
		},
	}
}

// number returns a float, or an int as Python takes it for one.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	}
	return 0, false
}

// float32Of refuses floats that are infinite as a float32, and were not before.
func float32Of(t reflect.Type, from func(*scope, any) (reflect.Value, error)) func(*scope, any) (reflect.Value, error) {
	return func(sc *scope, v any) (reflect.Value, error) {
		value, err := from(sc, v)
		if wide, _ := number(v); err == nil && value.OverflowFloat(wide) {
			return reflect.Value{}, &exception{kind: "OverflowError", text: fmt.Sprintf("%g does not fit into %s", wide, t)}
		}
		return value, err
	}
}

func integer(t reflect.Type) func(*scope, any) (reflect.Value, error) {
	return func(_ *scope, v any) (reflect.Value, error) {
		if reflect.TypeOf(v) == t {
			return reflect.ValueOf(v), nil
		}
		to := reflect.New(t).Elem()
		if n, ok := v.(uint64); ok {
			if !to.CanUint() || to.OverflowUint(n) {
				return reflect.Value{}, overflow(n, t)
			}
			to.SetUint(n)
			return to, nil
		}
		n, ok := v.(int64)
		if !ok {
			return reflect.Value{}, wrongType("int", v)
		}
		if to.CanUint() {
			if n < 0 || to.OverflowUint(uint64(n)) {
				return reflect.Value{}, overflow(n, t)
			}
			to.SetUint(uint64(n))
		} else {
			if to.OverflowInt(n) {
				return reflect.Value{}, overflow(n, t)
			}
			to.SetInt(n)
		}
		return to, nil
	}
}

func overflow[N int64 | uint64](n N, t reflect.Type) error {
	return &exception{kind: "OverflowError", text: fmt.Sprintf("%d does not fit into %s", n, t)}
}

// smallest is an unsigned integer as replies have it.
func smallest(n uint64) any {
	if n > math.MaxInt64 {
		return n
	}
	return int64(n)
}

func optionalConverter(t reflect.Type) (*converter, error) {
	element, err := converterOf(t.Elem())
	if err != nil {
		return nil, fmt.Errorf("type %s is not supported", t)
	}
	return &converter{
		python: element.python + " | None",
		from: func(sc *scope, v any) (reflect.Value, error) {
			if v == nil {
				return reflect.Zero(t), nil
			}
			e, err := element.from(sc, v)
			if err != nil {
				return reflect.Value{}, err
			}
			p := reflect.New(t.Elem())
			p.Elem().Set(e)
			return p, nil
		},
		to: func(r *results, v reflect.Value) (any, error) {
			if v.IsNil() {
				return nil, nil
			}
			return element.to(r, v.Elem())
		},
	}, nil
}

// fromAny converts an argument for a parameter of type any: to nil, bool, int64, uint64, float64,
// string, []byte, []any, map[string]any, or the result of source.anything.
func fromAny(sc *scope, v any) (reflect.Value, error) {
	result, err := plainAny(sc, v)
	if err != nil {
		return reflect.Value{}, err
	}
	return reflect.ValueOf(&result).Elem(), nil
}

func plainAny(sc *scope, v any) (any, error) {
	switch v := v.(type) {
	case *source:
		result, err := v.anything(sc)
		if err == nil {
			sc.borrowed = append(sc.borrowed, result)
		}
		return result, err
	case []any:
		list := make([]any, len(v))
		for i, value := range v {
			var err error
			if list[i], err = plainAny(sc, value); err != nil {
				return nil, about(fmt.Sprintf("element %d", i), err)
			}
		}
		return list, nil
	case dict:
		m := make(map[string]any, len(v))
		for _, it := range v {
			value, err := plainAny(sc, it.value)
			if err != nil {
				return nil, about(fmt.Sprintf("key %q", it.key), err)
			}
			m[it.key] = value
		}
		return m, nil
	}
	return v, nil
}

// wrongType says that an argument is not of the type that is wanted.
func wrongType(want string, got any) error {
	return typeErrorf("%s is wanted, not %s", want, pythonType(got))
}
