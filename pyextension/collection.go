//go:build cgo && unix

package pyextension

import (
	"fmt"
	"reflect"
)

func listConverter(t reflect.Type) (*converter, error) {
	element, err := converterOf(t.Elem())
	if err != nil {
		return nil, err
	}
	return &converter{
		python: "list[" + element.python + "]",
		from: func(sc *scope, v any) (reflect.Value, error) {
			values, ok := v.([]any)
			if !ok {
				return reflect.Value{}, wrongType("list", v)
			}
			list := reflect.MakeSlice(t, 0, len(values))
			for i, value := range values {
				e, err := element.from(sc, value)
				if err != nil {
					return reflect.Value{}, about(fmt.Sprintf("element %d", i), err)
				}
				list = reflect.Append(list, e)
			}
			return list, nil
		},
		to: func(r *results, v reflect.Value) (any, error) {
			list := make([]any, v.Len())
			var failed error
			for i := range list { // all of them, since each is taken over
				if list[i], err = element.to(r, v.Index(i)); err != nil && failed == nil {
					failed = about(fmt.Sprintf("element %d", i), err)
				}
			}
			return list, failed
		},
	}, nil
}

func dictConverter(t reflect.Type) (*converter, error) {
	element, err := converterOf(t.Elem())
	if err != nil {
		return nil, err
	}
	return &converter{
		python: "dict[str, " + element.python + "]",
		from: func(sc *scope, v any) (reflect.Value, error) {
			values, ok := v.(dict)
			if !ok {
				return reflect.Value{}, wrongType("dict", v)
			}
			m := reflect.MakeMapWithSize(t, len(values))
			for _, it := range values {
				e, err := element.from(sc, it.value)
				if err != nil {
					return reflect.Value{}, about(fmt.Sprintf("key %q", it.key), err)
				}
				m.SetMapIndex(reflect.ValueOf(it.key).Convert(t.Key()), e)
			}
			return m, nil
		},
		to: func(r *results, v reflect.Value) (any, error) {
			values := make(dict, 0, v.Len())
			var failed error
			for _, key := range sortedKeys(v) {
				value, err := element.to(r, v.MapIndex(key))
				if err != nil && failed == nil {
					failed = about(fmt.Sprintf("key %q", key), err)
				}
				values = append(values, item{key.String(), value})
			}
			return values, failed
		},
	}, nil
}
