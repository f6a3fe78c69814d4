package cdevice

import "reflect"

// isNil reports whether an argument is nil: nothing, or an interface that holds a nil
// pointer, map, slice or function.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return r.IsNil()
	}
	return false
}

// absent is the error for an argument that is nil.
func absent(op, name, want string) error { return invalid(op, name, "nil", want) }
