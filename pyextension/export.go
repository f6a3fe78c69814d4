//go:build cgo && unix

package pyextension

import (
	"context"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

// export fills C structs with an object, in memory that a capsule will own, and returns their addresses.
func export(in *invocation, o *object) (any, error) {
	form, err := argument[string](in, 1)
	if err != nil {
		return nil, err
	}
	switch form {
	case "schema":
		return in.fill(o.exportSchema, schemaStruct)
	case "device_array":
		return in.fill(o.exportDeviceArray, schemaStruct, deviceArrayStruct)
	case "array":
		return in.fill(func(s structs) error { return o.exportPlainArray(in.scope.context(), s) }, schemaStruct, plainArrayStruct)
	case "device_stream", "stream":
		return in.exportStream(o, form)
	}
	return nil, valueErrorf("there is no form %q", form)
}

// exportedStruct is a C struct in a reply, which a capsule will own.
type exportedStruct struct {
	number byte
	at     uintptr
	free   func() // releases the struct and frees it
}

// structs are addresses of C structs.
type structs []uintptr

// fill allocates the structs and fills them. Where that fails, none is left. The result is one of them, or a tuple of two.
func (in *invocation) fill(f func(structs) error, what ...cStruct) (any, error) {
	var s structs
	values := make(tuple, len(what))
	for i, w := range what {
		p, err := capi.Allocate(w.size)
		if err != nil {
			s.free()
			return nil, err
		}
		s = append(s, p)
		values[i] = exportedStruct{w.number, p, func() { w.release(p); capi.Free(p) }}
	}
	if err := f(s); err != nil {
		s.free()
		return nil, err
	}
	for _, v := range values {
		in.results.exported = append(in.results.exported, v.(exportedStruct))
	}
	if len(values) == 1 {
		return values[0], nil
	}
	return values, nil
}

func (s structs) free() {
	for _, p := range s {
		capi.Free(p)
	}
}

func (o *object) exportSchema(s structs) error {
	out := cdevice.SchemaFromPtr(s[0])
	if o.kind == kindArray {
		return cdevice.ExportField(o.array.Field(), out)
	}
	schema, err := o.schemaOf()
	if err != nil {
		return err
	}
	return cdevice.ExportSchema(schema, out)
}

func (o *object) exportDeviceArray(s structs) error {
	schema, array := cdevice.SchemaFromPtr(s[0]), cdevice.DeviceArrayFromPtr(s[1])
	switch o.kind {
	case kindBatch:
		return cdevice.ExportRecordBatch(o.batch, array, schema)
	case kindArray:
		return cdevice.ExportArray(o.array, array, schema)
	}
	return typeErrorf("a %s is not an array", o.kind)
}

// exportPlainArray waits for the event, since a plain struct has none.
func (o *object) exportPlainArray(ctx context.Context, s structs) error {
	schema, array := cdevice.SchemaFromPtr(s[0]), cdevice.ArrayFromPtr(s[1])
	if !o.deviceID().Type.CPUAccessible() {
		return errNotCPU
	}
	switch o.kind {
	case kindBatch:
		b, err := o.batch.AsCPU(ctx)
		if err != nil {
			return err
		}
		defer b.Release()
		return cdevice.ExportRecordBatch(b, array, schema)
	case kindArray:
		a, err := o.array.AsCPU(ctx)
		if err != nil {
			return err
		}
		defer a.Release()
		return cdevice.ExportArray(a, array, schema)
	}
	return typeErrorf("a %s is not an array", o.kind)
}

// exportStream exports the rest of a reader, or a batch as a stream of one.
func (in *invocation) exportStream(o *object, form string) (any, error) {
	if form == "stream" && !o.deviceID().Type.CPUAccessible() {
		return nil, errNotCPU
	}
	if o.kind == kindArray {
		return in.exportChunks(o.array, form)
	}
	sc, r, err := in.streamOf(o, form)
	if err != nil {
		return nil, err
	}
	if form == "device_stream" {
		return in.fill(func(s structs) error {
			if err := cdevice.ExportRecordReader(r, cdevice.DeviceArrayStreamFromPtr(s[0])); err != nil {
				return err
			}
			return sc.unlock(s[0], deviceStreamStruct, capi.UnlockDeviceStream)
		}, deviceStreamStruct)
	}
	cpu, err := r.AsCPU(sc.context())
	if err != nil {
		return nil, err
	}
	defer cpu.Release()
	return in.fill(func(s structs) error {
		if err := cdevice.ExportRecordReader(cpu, cdevice.ArrayStreamFromPtr(s[0])); err != nil {
			return err
		}
		return sc.unlock(s[0], plainStreamStruct, capi.UnlockStream)
	}, plainStreamStruct)
}

// exportChunks exports an array as a stream of one chunk.
func (in *invocation) exportChunks(a *cdevice.Array, form string) (any, error) {
	if form == "stream" {
		var err error
		if a, err = owned[*cdevice.Array](in.scope)(a.AsCPU(in.scope.context())); err != nil {
			return nil, err
		}
	}
	a.Retain()
	r, err := cdevice.NewArrayReader(a.Field(), a.DeviceID().Type, func(yield func(*cdevice.Array, error) bool) {
		defer a.Release()
		yield(a, nil)
	})
	if err != nil {
		a.Release()
		return nil, err
	}
	defer r.Release()
	if form == "device_stream" {
		return in.fill(func(s structs) error {
			return cdevice.ExportArrayReader(r, cdevice.DeviceArrayStreamFromPtr(s[0]))
		}, deviceStreamStruct)
	}
	return in.fill(func(s structs) error {
		return cdevice.ExportArrayReader(r, cdevice.ArrayStreamFromPtr(s[0]))
	}, plainStreamStruct)
}

// streamOf returns the reader to export, borrowed, and the scope whose context it needs.
func (in *invocation) streamOf(o *object, form string) (*scope, *cdevice.RecordReader, error) {
	switch o.kind {
	case kindReader:
		r, err := owned[*cdevice.RecordReader](in.scope)(o.reader.rest("__arrow_c_" + form + "__"))
		return o.reader.scope, r, err
	case kindBatch:
		r, err := owned[*cdevice.RecordReader](in.scope)(readerOf(o.batch))
		return in.scope, r, err
	}
	return nil, nil, typeErrorf("a %s is not a stream", o.kind)
}

// unlock makes an exported stream give up the GIL, and keeps the scope until its release.
func (s *scope) unlock(stream uintptr, what cStruct, with func(uintptr, uint64) error) error {
	s.hold()
	token := handle.New(held{s})
	if err := with(stream, uint64(token)); err != nil {
		handle.Take(token)
		s.drop()
		what.release(stream)
		return err
	}
	return nil
}

// held is a stream that Python holds.
type held struct{ *scope }

func (h held) Release() { h.drop() }
