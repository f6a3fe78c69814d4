package main

// #include <stdint.h>
import "C"

import "github.com/arrowdevice/arrowdevice/cdevice"

// Plain structs, which name no device: most Python libraries exchange these.

// golib_import_plain_array takes the contents of a struct ArrowArray and a struct ArrowSchema.
//
//export golib_import_plain_array
func golib_import_plain_array(array, schema C.uintptr_t, validate, withGIL C.int, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		a, err := cdevice.ImportArray(cdevice.ArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema)), importOptions(withGIL)...)
		a, err = checked(a, err, validate)
		return anArray{a}, err
	})
}

//export golib_import_plain_batch
func golib_import_plain_batch(array, schema C.uintptr_t, validate, withGIL C.int, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		b, err := cdevice.ImportRecordBatch(cdevice.ArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema)), importOptions(withGIL)...)
		b, err = checked(b, err, validate)
		return aBatch{b}, err
	})
}

// golib_export_plain fills the struct ArrowArray at array, and the struct ArrowSchema at
// schema unless that is 0. It waits for the event.
//
//export golib_export_plain
func golib_export_plain(handle C.uint64_t, array, schema C.uintptr_t) *C.char {
	return guard(func() error {
		t, err := get(handle)
		if err != nil {
			return err
		}
		if t, err = t.asCPU(); err != nil {
			return err
		}
		defer t.Release()
		return t.exportPlain(cdevice.ArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema)))
	})
}

// golib_import_plain_stream imports the struct ArrowArrayStream at an address, of record
// batches or of arrays.
//
//export golib_import_plain_stream
func golib_import_plain_stream(address C.uintptr_t, ofArrays, validate, prefetch, withGIL C.int, out *C.uint64_t) *C.char {
	return create(out, func() (stream, error) {
		opts := importOptions(withGIL)
		in := cdevice.ArrayStreamFromPtr(uintptr(address))
		if ofArrays != 0 {
			return arraysOf(validate, prefetch)(cdevice.ImportArrayReader(in, opts...))
		}
		return batchesOf(validate, prefetch)(cdevice.ImportRecordReader(in, opts...))
	})
}

// golib_export_plain_stream fills the struct ArrowArrayStream at an address.
//
//export golib_export_plain_stream
func golib_export_plain_stream(handle C.uint64_t, address C.uintptr_t) *C.char {
	return guard(func() error {
		s, err := streamOf(handle)
		if err != nil {
			return err
		}
		if s, err = s.asCPU(); err != nil {
			return err
		}
		defer s.Release()
		return s.exportPlain(cdevice.ArrayStreamFromPtr(uintptr(address)))
	})
}
