package main

// #include <stdint.h>
import "C"

import (
	"context"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

func importOptions(withGIL C.int) []cdevice.ImportOption {
	if withGIL != 0 {
		return []cdevice.ImportOption{cdevice.WithGIL()}
	}
	return nil
}

// validatable is a cdevice.RecordBatch or a cdevice.Array.
type validatable interface {
	Release()
	ValidateFull(context.Context) error
}

// valid is a function for Map that validates each batch.
func valid[T validatable](item T) (T, error) { return item, item.ValidateFull(context.Background()) }

// checked returns an imported object, fully validated if validate is set; an invalid one is
// released.
func checked[T validatable](item T, err error, validate C.int) (T, error) {
	if err != nil || validate == 0 {
		return item, err
	}
	if _, err = valid(item); err != nil {
		item.Release()
	}
	return item, err
}

// golib_import_array imports the structs: with full validation, and with Python's lock held in the
// producer's release, if these are not 0.
//
//export golib_import_array
func golib_import_array(array, schema C.uintptr_t, validate, withGIL C.int, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		a, err := cdevice.ImportArray(cdevice.DeviceArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema)), importOptions(withGIL)...)
		a, err = checked(a, err, validate)
		return anArray{a}, err
	})
}

//export golib_import_batch
func golib_import_batch(array, schema C.uintptr_t, validate, withGIL C.int, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		b, err := cdevice.ImportRecordBatch(cdevice.DeviceArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema)), importOptions(withGIL)...)
		b, err = checked(b, err, validate)
		return aBatch{b}, err
	})
}

// golib_export fills the struct ArrowDeviceArray at array, and the struct
// ArrowSchema at schema unless that is 0.
//
//export golib_export
func golib_export(handle C.uint64_t, array, schema C.uintptr_t, forHost C.int) *C.char {
	return guard(func() error {
		t, err := get(handle)
		if err != nil {
			return err
		}
		if forHost != 0 {
			if t, err = t.asCPU(); err != nil {
				return err
			}
			defer t.Release()
		}
		return t.export(cdevice.DeviceArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema)))
	})
}

//export golib_export_schema
func golib_export_schema(handle C.uint64_t, schema C.uintptr_t) *C.char {
	return guard(func() error {
		t, err := get(handle)
		if err != nil {
			return err
		}
		return t.exportSchema(cdevice.SchemaFromPtr(uintptr(schema)))
	})
}
