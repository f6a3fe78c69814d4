//go:build cgo

package main

import (
	"context"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	imports := pyextension.WithParams("array", "schema", "plain", "validate", "with_gil")
	pyextension.Func("import_array", importArray, imports)
	pyextension.Func("import_batch", importBatch, imports)
	pyextension.Func("take_array", take[*cdevice.Array], pyextension.WithParams("array", "validate"))
	pyextension.Func("take_batch", take[*cdevice.RecordBatch], pyextension.WithParams("batch", "validate"))
	pyextension.Func("export", export, pyextension.WithParams("item", "array", "schema"))
	pyextension.Func("export_plain", exportPlain, pyextension.WithParams("item", "array", "schema"))
	pyextension.Func("export_schema", exportSchema, pyextension.WithParams("item", "schema"))
}

func importOptions(withGIL bool) []cdevice.ImportOption {
	if withGIL {
		return []cdevice.ImportOption{cdevice.WithGIL()}
	}
	return nil
}

// valid is a function for Map that validates each item.
func valid[T item](i T) (T, error) { return i, i.ValidateFull(context.Background()) }

// checked returns an imported item, fully validated if validate is set; an invalid one is released.
func checked[T item](validate bool) func(T, error) (T, error) {
	return func(i T, err error) (T, error) {
		if err != nil || !validate {
			return i, err
		}
		if _, err = valid(i); err != nil {
			i.Release()
		}
		return i, err
	}
}

// importArray takes the contents of an ArrowDeviceArray, or an ArrowArray if plain is set, and of an ArrowSchema. With withGIL
// it holds Python's lock in the producer's release.
func importArray(array, schema uint64, plain, validate, withGIL bool) (*cdevice.Array, error) {
	as, opts := cdevice.SchemaFromPtr(uintptr(schema)), importOptions(withGIL)
	if plain {
		return checked[*cdevice.Array](validate)(cdevice.ImportArray(cdevice.ArrayFromPtr(uintptr(array)), as, opts...))
	}
	return checked[*cdevice.Array](validate)(cdevice.ImportArray(cdevice.DeviceArrayFromPtr(uintptr(array)), as, opts...))
}

// importBatch is importArray for a record batch.
func importBatch(array, schema uint64, plain, validate, withGIL bool) (*cdevice.RecordBatch, error) {
	as, opts := cdevice.SchemaFromPtr(uintptr(schema)), importOptions(withGIL)
	if plain {
		return checked[*cdevice.RecordBatch](validate)(cdevice.ImportRecordBatch(cdevice.ArrayFromPtr(uintptr(array)), as, opts...))
	}
	return checked[*cdevice.RecordBatch](validate)(cdevice.ImportRecordBatch(cdevice.DeviceArrayFromPtr(uintptr(array)), as, opts...))
}

// take returns an argument that it has validated, if validate is set.
func take[T item](i T, validate bool) (T, error) {
	if !validate {
		return i, nil
	}
	return valid(i)
}

// export fills an ArrowDeviceArray, and an ArrowSchema unless its address is 0.
func export(v any, array, schema uint64) error {
	out, as := cdevice.DeviceArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema))
	_, err := either(v,
		func(a *cdevice.Array) (any, error) { return nil, cdevice.ExportArray(a, out, as) },
		func(b *cdevice.RecordBatch) (any, error) { return nil, cdevice.ExportRecordBatch(b, out, as) })
	return err
}

// exportPlain fills an ArrowArray, and an ArrowSchema unless its address is 0. It waits for the event.
func exportPlain(ctx context.Context, v any, array, schema uint64) error {
	cpu, err := asCPU(ctx, v)
	if err != nil {
		return err
	}
	defer cpu.(item).Release()
	out, as := cdevice.ArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema))
	_, err = either(cpu,
		func(a *cdevice.Array) (any, error) { return nil, cdevice.ExportArray(a, out, as) },
		func(b *cdevice.RecordBatch) (any, error) { return nil, cdevice.ExportRecordBatch(b, out, as) })
	return err
}

func exportSchema(v any, schema uint64) error {
	out := cdevice.SchemaFromPtr(uintptr(schema))
	_, err := either(v,
		func(a *cdevice.Array) (any, error) { return nil, cdevice.ExportField(a.Field(), out) },
		func(b *cdevice.RecordBatch) (any, error) { return nil, cdevice.ExportSchema(b.Schema(), out) })
	return err
}
