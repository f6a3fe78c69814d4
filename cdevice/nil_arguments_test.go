package cdevice_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// ended releases the result of a call that succeeded, and returns its error.
func ended[T interface{ Release() }](v T, err error) error {
	if err == nil {
		v.Release()
	}
	return err
}

func second[T any](_ T, err error) error { return err }

// notCUDA leaves out the error for memory that is not CUDA's, as the memory of these tests is.
func notCUDA(err error) error {
	if errors.Is(err, device.ErrNotSupported) {
		return nil
	}
	return err
}

// exporting calls export with structs that it then releases.
func exporting[A cdevice.ArrayStruct](export func(*A, *cdata.CArrowSchema) error) error {
	out, sch := new(A), new(cdata.CArrowSchema)
	err := export(out, sch)
	cdevice.ReleaseStruct(out)
	cdevice.ReleaseStruct(sch)
	return err
}

func streaming[S cdevice.StreamStruct](export func(*S) error) error {
	out := new(S)
	err := export(out)
	cdevice.ReleaseStruct(out)
	return err
}

// noCtx is a nil context: go vet knows the literal.
var noCtx context.Context

const (
	nilCtx    = "ctx = nil, want a context"
	nilDevice = "device = nil, want "
	nilStruct = " = NULL, want a struct"
	nilOption = ": opts[0] = nil, want an option"
)

type (
	in = cdevice.ImportOption
	cp = cdevice.CopyOption
)

func TestNilArguments(t *testing.T) {
	checkLeaks(t)
	g := newGiven(t)
	rows := map[string]nilargs.Row{}
	for _, part := range []map[string]nilargs.Row{g.readRows(), g.copyRows(), exportRows(g, deviceStructs), importRows(g, deviceStructs), g.asyncRows(), g.readerRows(), g.optionRows(), g.releaseRows()} {
		for name, row := range part {
			assert.NotContains(t, rows, name)
			rows[name] = row
		}
	}
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/cdevice", arrow.ErrInvalid, rows)
	t.Run("C data interface", func(t *testing.T) {
		nilargs.Run(t, arrow.ErrInvalid, exportRows(g, plainStructs))
		nilargs.Run(t, arrow.ErrInvalid, importRows(g, plainStructs))
	})
}

// nilAllocator is of use to nothing: a nil one stands for arrow-go's default.
type nilAllocator struct{ unused byte }

func (a *nilAllocator) Allocate(int) []byte           { panic(a.unused) }
func (a *nilAllocator) Reallocate(int, []byte) []byte { panic(a.unused) }
func (a *nilAllocator) Free([]byte)                   { panic(a.unused) }

func (g *given) readRows() map[string]nilargs.Row {
	return map[string]nilargs.Row{
		"Array.CountNulls(ctx)":        {Call: func() error { return second(g.array.CountNulls(noCtx)) }, Want: nilCtx},
		"Array.HostView(ctx)":          {Call: func() error { return second(g.array.HostView(noCtx)) }, Want: nilCtx},
		"Array.View(ctx)":              {Call: func() error { return second(g.array.View(noCtx)) }, Want: nilCtx},
		"ArrayView.Strings(ctx)":       {Call: func() error { v, _ := g.array.View(background); return second(v.Strings(noCtx)) }, Want: nilCtx},
		"RecordBatch.ColumnView(ctx)":  {Call: func() error { return second(g.batch.ColumnView(noCtx, 0)) }, Want: nilCtx},
		"Array.NumBytes(ctx)":          {Call: func() error { return second(g.array.NumBytes(noCtx)) }, Want: nilCtx},
		"Array.Synchronize(ctx)":       {Call: func() error { return g.array.Synchronize(noCtx) }, Want: nilCtx},
		"Array.AsCPU(ctx)":             {Call: func() error { return second(g.array.AsCPU(noCtx)) }, Want: nilCtx},
		"Array.ForCuDF(ctx)":           {Call: func() error { return second(g.array.ForCuDF(noCtx)) }, Want: "cdevice: for cuDF: " + nilCtx},
		"Array.WithEvent(s)":           {Call: func() error { return second(g.array.WithEvent((*cudaalloc.Stream)(nil))) }, Want: "stream = nil, want a stream of cpu"},
		"RecordBatch.AsCPU(ctx)":       {Call: func() error { return second(g.batch.AsCPU(noCtx)) }, Want: nilCtx},
		"Array.ForCuDF(opts...)":       {Call: func() error { return notCUDA(second(g.array.ForCuDF(background, nil))) }, Want: nilOption},
		"RecordBatch.ForCuDF(opts...)": {Call: func() error { return notCUDA(second(g.batch.ForCuDF(background, nil))) }, Want: nilOption},
		"Array.FromCuDF(ctx)":          {Call: func() error { return second(g.array.FromCuDF(noCtx, arrow.Null)) }, Want: "cdevice: from cuDF: " + nilCtx},
		"Array.FromCuDF(dt)":           {Call: func() error { return second(g.array.FromCuDF(background, nil)) }, Want: "cdevice: from cuDF: type = nil, want the type of the result"},
		"RecordBatch.FromCuDF(ctx)":    {Call: func() error { return second(g.batch.FromCuDF(noCtx, g.batch.Schema())) }, Want: nilCtx},
		"RecordBatch.FromCuDF(schema)": {Call: func() error { return second(g.batch.FromCuDF(background, nil)) }, Want: "from cuDF: schema = nil, want the schema of the result"},
		"RecordBatch.ForCuDF(ctx)":     {Call: func() error { return second(g.batch.ForCuDF(noCtx)) }, Want: nilCtx},
		"RecordBatch.WithEvent(s)":     {Call: func() error { return second(g.batch.WithEvent(nil)) }, Want: "stream = nil, want a stream of cpu"},
		"RecordReader.AsCPU(ctx)":      {Call: func() error { return second(g.reader().AsCPU(noCtx)) }, Want: nilCtx},
		"ArrayReader.AsCPU(ctx)":       {Call: func() error { return second(g.arrays().AsCPU(noCtx)) }, Want: nilCtx},
		"ArrayReader.CopyTo(ctx)":      {Call: func() error { return second(g.arrays().CopyTo(noCtx, g.host)) }, Want: nilCtx},
		"ArrayReader.CopyTo(dev)":      {Call: func() error { return second(g.arrays().CopyTo(background, nil)) }, Want: nilDevice},
		"ArrayReader.CopyTo(opts...)": {Call: func() error {
			r, err := g.arrays().CopyTo(background, g.host, nil)
			if err == nil {
				r.Release()
			}
			return err
		}, Want: nilOption},
		"Array.WaitOn(stream)":         {Call: func() error { return g.array.WaitOn(nil) }, Want: "stream = nil"},
		"Array.UsedOn(stream)":         {Call: func() error { return g.array.UsedOn((*cudaalloc.Stream)(nil)) }, Want: "stream = nil"},
		"RecordBatch.HostView(ctx)":    {Call: func() error { return second(g.batch.HostView(noCtx)) }, Want: nilCtx},
		"RecordBatch.NumBytes(ctx)":    {Call: func() error { return second(g.batch.NumBytes(noCtx)) }, Want: nilCtx},
		"RecordBatch.Synchronize(ctx)": {Call: func() error { return g.batch.Synchronize(noCtx) }, Want: nilCtx},
		"RecordBatch.WaitOn(stream)":   {Call: func() error { return g.batch.WaitOn(nil) }, Want: "stream = nil"},
		"RecordBatch.UsedOn(stream)":   {Call: func() error { return g.batch.UsedOn(nil) }, Want: "stream = nil"},
		"WrapRecordBatch(rec)":         {Call: func() error { return second(cdevice.WrapRecordBatch(nil, g.host)) }, Want: "wrap: RecordBatch = nil"},
		"WrapRecordBatch(dev)":         {Call: func() error { return second(cdevice.WrapRecordBatch(g.rec, nil)) }, Want: nilDevice},
		"WrapArray(arr)":               {Call: func() error { return second(cdevice.WrapArray((*array.Int64)(nil), g.host)) }, Want: "wrap: Array = nil"},
		"WrapArray(dev)":               {Call: func() error { return second(cdevice.WrapArray(g.rec.Column(0), (*cudaalloc.Device)(nil))) }, Want: nilDevice},
		"NewArray(dev)":                {Call: func() error { return g.newArray(nil, arrow.Null) }, Want: nilDevice},
		"NewArray(dt)":                 {Call: func() error { return g.newArray(g.host, nil) }, Want: "new: type = nil"},
		"NewRecordBatch(dev)":          {Call: func() error { return g.newBatch(nil, g.rec.Schema()) }, Want: nilDevice},
		"NewRecordBatch(schema)":       {Call: func() error { return g.newBatch(g.host, nil) }, Want: "schema = nil"},
	}
}

func (g *given) copyRows() map[string]nilargs.Row {
	return map[string]nilargs.Row{
		"Array.CopyTo(ctx)":             {Call: func() error { return second(g.array.CopyTo(noCtx, g.host)) }, Want: nilCtx},
		"Array.CopyTo(dev)":             {Call: func() error { return second(g.array.CopyTo(background, nil)) }, Want: nilDevice},
		"Array.CopyTo(opts...)":         {Call: func() error { return ended(g.array.CopyTo(background, g.host, cp(nil))) }, Want: nilOption},
		"Array.CopyToHost(ctx)":         {Call: func() error { return second(g.array.CopyToHost(noCtx, nil)) }, Want: nilCtx},
		"Array.CopyToHost(mem)":         {Call: func() error { return ended(g.array.CopyToHost(background, nil)) }},
		"Array.CopyToHost(opts...)":     {Call: func() error { return ended(g.array.CopyToHost(background, nil, cp(nil))) }, Want: nilOption},
		"CopyToDevice(ctx)":             {Call: func() error { return second(cdevice.CopyToDevice(noCtx, g.rec, g.host)) }, Want: nilCtx},
		"CopyToDevice(rec)":             {Call: func() error { return second(cdevice.CopyToDevice(background, nil, g.host)) }, Want: "RecordBatch = nil"},
		"CopyToDevice(dev)":             {Call: func() error { return second(cdevice.CopyToDevice(background, g.rec, nil)) }, Want: nilDevice},
		"CopyToDevice(opts...)":         {Call: func() error { return ended(cdevice.CopyToDevice(background, g.rec, g.host, nil)) }, Want: nilOption},
		"RecordBatch.ValidateFull(ctx)": {Call: func() error { return g.batch.ValidateFull(noCtx) }, Want: "validate: " + nilCtx},
		"Array.ValidateFull(ctx)":       {Call: func() error { return g.array.ValidateFull(noCtx) }, Want: "validate: " + nilCtx},
		"RecordBatch.CopyTo(ctx)":       {Call: func() error { return second(g.batch.CopyTo(noCtx, g.host)) }, Want: nilCtx},
		"RecordBatch.CopyTo(dev)":       {Call: func() error { return second(g.batch.CopyTo(background, (*cudaalloc.Device)(nil))) }, Want: nilDevice},
		"RecordBatch.CopyTo(opts...)":   {Call: func() error { return ended(g.batch.CopyTo(background, g.host, nil)) }, Want: nilOption},
		"RecordBatch.CopyToHost(ctx)":   {Call: func() error { return second(g.batch.CopyToHost(noCtx, nil)) }, Want: nilCtx},
		"RecordBatch.CopyToHost(mem)":   {Call: func() error { return ended(g.batch.CopyToHost(background, (*nilAllocator)(nil))) }},
		"RecordBatch.CopyToHost(opts...)": {Call: func() error {
			return ended(g.batch.CopyToHost(background, nil, cp(nil)))
		}, Want: nilOption},
		"RecordReader.CopyTo(ctx)":     {Call: func() error { return second(g.reader().CopyTo(noCtx, g.host)) }, Want: nilCtx},
		"RecordReader.CopyTo(dev)":     {Call: func() error { return second(g.reader().CopyTo(background, nil)) }, Want: nilDevice},
		"RecordReader.CopyTo(opts...)": {Call: func() error { return ended(g.reader().CopyTo(background, g.host, nil)) }, Want: nilOption},
	}
}

func exportRows[A cdevice.ArrayStruct, S cdevice.StreamStruct](g *given, kind structs[A, S]) map[string]nilargs.Row {
	row := func(want string, call func() error) nilargs.Row { return nilargs.Row{Call: call, Want: want} }
	return map[string]nilargs.Row{
		"ExportRecordBatch(batch)": row("cdevice: export: RecordBatch = nil, want a batch", func() error {
			return exporting(func(o *A, s *cdata.CArrowSchema) error { return cdevice.ExportRecordBatch(nil, o, s) })
		}),
		"ExportRecordBatch(out)": row(kind.array+nilStruct, func() error { return cdevice.ExportRecordBatch(g.batch, (*A)(nil), nil) }),
		"ExportRecordBatch(outSchema)": row("", func() error {
			return exporting(func(o *A, _ *cdata.CArrowSchema) error { return cdevice.ExportRecordBatch(g.batch, o, nil) })
		}),
		"ExportArray(array)": row("Array = nil, want an array", func() error {
			return exporting(func(o *A, s *cdata.CArrowSchema) error { return cdevice.ExportArray(nil, o, s) })
		}),
		"ExportArray(out)": row(kind.array+nilStruct, func() error { return cdevice.ExportArray(g.array, (*A)(nil), nil) }),
		"ExportArray(outSchema)": row("", func() error {
			return exporting(func(o *A, _ *cdata.CArrowSchema) error { return cdevice.ExportArray(g.array, o, nil) })
		}),
		"ExportRecordReader(r)": row("RecordReader = nil", func() error {
			return streaming(func(o *S) error { return cdevice.ExportRecordReader(nil, o) })
		}),
		"ExportRecordReader(out)": row(kind.stream+nilStruct, func() error { return cdevice.ExportRecordReader(g.reader(), (*S)(nil)) }),
		"ExportArrayReader(r)": row("ArrayReader = nil", func() error {
			return streaming(func(o *S) error { return cdevice.ExportArrayReader(nil, o) })
		}),
		"ExportArrayReader(out)": row(kind.stream+nilStruct, func() error { return cdevice.ExportArrayReader(g.arrays(), (*S)(nil)) }),
	}
}

func (g *given) asyncRows() map[string]nilargs.Row {
	return map[string]nilargs.Row{
		"ExportSchema(s)":   {Call: func() error { return cdevice.ExportSchema(nil, new(cdata.CArrowSchema)) }, Want: "schema = nil"},
		"ExportSchema(out)": {Call: func() error { return cdevice.ExportSchema(g.rec.Schema(), nil) }, Want: "ArrowSchema" + nilStruct},
		"ExportField(out)":  {Call: func() error { return cdevice.ExportField(arrow.Field{Type: arrow.Null}, nil) }, Want: "ArrowSchema" + nilStruct},
		"ImportSchema(sch)": {Call: func() error { return second(cdevice.ImportSchema(nil)) }, Want: "ArrowSchema" + nilStruct},
		"ImportField(sch)":  {Call: func() error { return second(cdevice.ImportField(nil)) }, Want: "ArrowSchema" + nilStruct},
		"ExportAsync(ctx)":  {Call: func() error { return second(g.exportAsync(noCtx, g.reader())) }, Want: nilCtx},
		"AsyncExport.Wait(ctx)": {Call: func() error {
			stream, err := g.exportAsync(background, g.reader())
			if err != nil {
				return err
			}
			return stream.Wait(noCtx)
		}, Want: "cdevice: wait: " + nilCtx},
		"ExportAsync(r)":       {Call: func() error { return second(g.exportAsync(background, nil)) }, Want: "RecordReader = nil"},
		"ExportAsync(handler)": {Call: func() error { return second(cdevice.ExportAsync(background, g.reader(), nil)) }, Want: "ArrowAsyncDeviceStreamHandler = NULL, want a handler of a consumer"},
	}
}

// A struct passed together with a nil argument is released: checkLeaks checks it.
func importRows[A cdevice.ArrayStruct, S cdevice.StreamStruct](g *given, kind structs[A, S]) map[string]nilargs.Row {
	dt, schema := g.rec.Schema().Field(0).Type, g.rec.Schema()
	row := func(want string, call func() error) nilargs.Row { return nilargs.Row{Call: call, Want: want} }
	batch := func() *A { return exportedBatch[A](g) }
	arr := func() *A { return exportedOne[A](g) }
	return map[string]nilargs.Row{
		"ImportRecordBatch(arr)":               row(kind.array+nilStruct, func() error { return second(cdevice.ImportRecordBatch((*A)(nil), g.schema())) }),
		"ImportRecordBatch(sch)":               row("ArrowSchema"+nilStruct, func() error { return second(cdevice.ImportRecordBatch(batch(), nil)) }),
		"ImportRecordBatch(opts...)":           row(nilOption, func() error { return ended(cdevice.ImportRecordBatch(batch(), g.schema(), nil)) }),
		"ImportRecordBatchWithSchema(arr)":     row(kind.array+nilStruct, func() error { return second(cdevice.ImportRecordBatchWithSchema((*A)(nil), schema)) }),
		"ImportRecordBatchWithSchema(s)":       row("schema = nil", func() error { return second(cdevice.ImportRecordBatchWithSchema(batch(), nil)) }),
		"ImportRecordBatchWithSchema(opts...)": row(nilOption, func() error { return ended(cdevice.ImportRecordBatchWithSchema(batch(), schema, nil)) }),
		"ImportArray(arr)":                     row(kind.array+nilStruct, func() error { return second(cdevice.ImportArray((*A)(nil), g.field())) }),
		"ImportArray(sch)":                     row("ArrowSchema"+nilStruct, func() error { return second(cdevice.ImportArray(arr(), nil)) }),
		"ImportArray(opts...)":                 row(nilOption, func() error { return ended(cdevice.ImportArray(arr(), g.field(), nil)) }),
		"ImportArrayWithType(arr)":             row(kind.array+nilStruct, func() error { return second(cdevice.ImportArrayWithType((*A)(nil), dt)) }),
		"ImportArrayWithType(dt)":              row("type = nil", func() error { return second(cdevice.ImportArrayWithType(arr(), nil)) }),
		"ImportArrayWithType(opts...)":         row(nilOption, func() error { return ended(cdevice.ImportArrayWithType(arr(), dt, nil)) }),
		"ImportRecordReader(stream)":           row(kind.stream+nilStruct, func() error { return second(cdevice.ImportRecordReader((*S)(nil))) }),
		"ImportRecordReader(opts...)":          row(nilOption, func() error { return ended(cdevice.ImportRecordReader(exportedReader[S](g), nil)) }),
		"ImportArrayReader(stream)":            row(kind.stream+nilStruct, func() error { return second(cdevice.ImportArrayReader((*S)(nil))) }),
		"ImportArrayReader(opts...)":           row(nilOption, func() error { return ended(cdevice.ImportArrayReader(exportedArrayReader[S](g), nil)) }),
	}
}

func (g *given) readerRows() map[string]nilargs.Row {
	s := g.rec.Schema()
	var noContext context.Context
	noneYet := func(context.Context) (*cdevice.RecordBatch, error) { return nil, io.EOF }
	return map[string]nilargs.Row{
		"RecordReader.Wait(ctx)":       {Call: func() error { return g.reader().Wait(noCtx) }, Want: nilCtx},
		"ArrayReader.Wait(ctx)":        {Call: func() error { return g.arrays().Wait(noCtx) }, Want: nilCtx},
		"ConcatRecordReaders(schema)":  {Call: func() error { return second(cdevice.ConcatRecordReaders(nil, device.CPU, nil)) }, Want: "schema = nil"},
		"ConcatRecordReaders(readers)": {Call: func() error { return second(cdevice.ConcatRecordReaders(s, device.CPU, nil)) }, Want: "readers = nil"},
		"NewRecordReader(schema)":      {Call: func() error { return second(cdevice.NewRecordReader(nil, device.CPU, g.reader().All())) }, Want: "schema = nil"},
		"NewRecordReader(batches)":     {Call: func() error { return second(cdevice.NewRecordReader(s, device.CPU, nil)) }, Want: "batches = nil"},
		"NewFailedRecordReader(err)":   {Call: func() error { return second(cdevice.NewFailedRecordReader(device.CPU, nil)) }, Want: "err = nil"},
		"NewRecordReaderFunc(ctx)": {Call: func() error {
			return second(cdevice.NewRecordReaderFunc(noContext, s, device.CPU, noneYet, nil))
		}, Want: "ctx = nil"},
		"NewRecordReaderFunc(schema)": {Call: func() error {
			return second(cdevice.NewRecordReaderFunc(background, nil, device.CPU, noneYet, nil))
		}, Want: "schema = nil"},
		"NewRecordReaderFunc(next)": {Call: func() error { return second(cdevice.NewRecordReaderFunc(background, s, device.CPU, nil, nil)) }, Want: "next = nil"},
		"NewRecordReaderFunc(stop)": {Call: func() error {
			return ended(cdevice.NewRecordReaderFunc(background, s, device.CPU, noneYet, nil))
		}},
		"RecordReader.MapTo(schema)":        {Call: func() error { return second(g.reader().MapTo(nil, nil)) }, Want: "read: schema = nil"},
		"RecordReader.MapTo(f)":             {Call: func() error { return second(g.reader().MapTo(s, nil)) }, Want: "read: f = nil, want a function"},
		"ArrayReader.MapTo(f)":              {Call: func() error { return second(g.arrays().MapTo(s.Field(0), nil)) }, Want: "f = nil"},
		"RecordBatchFromArrays(schema)":     {Call: func() error { return second(cdevice.RecordBatchFromArrays(nil, g.array)) }, Want: "new: schema = nil"},
		"RecordBatchFromArrays(columns...)": {Call: func() error { return second(cdevice.RecordBatchFromArrays(arrow.NewSchema(s.Fields()[:1], nil), nil)) }, Want: "column[0] = nil, want an array"},
		"RecordBatch.WithColumn(a)":         {Call: func() error { return second(g.batch.WithColumn(s.Field(0), nil)) }, Want: "with column: column = nil, want an array"},
		"NewArrayReader(arrays)":            {Call: func() error { return second(cdevice.NewArrayReader(s.Field(0), device.CPU, nil)) }, Want: "arrays = nil"},
		"WrapRecordReader(rdr)":             {Call: func() error { return second(cdevice.WrapRecordReader(nil, g.host)) }, Want: "RecordReader = nil"},
		"WrapRecordReader(dev)":             {Call: func() error { return second(cdevice.WrapRecordReader(g.arrowReader(), nil)) }, Want: nilDevice},
		"WrapChunked(chunked)":              {Call: func() error { return second(cdevice.WrapChunked(nil, g.host)) }, Want: "Chunked = nil"},
		"WrapChunked(dev)":                  {Call: func() error { return second(cdevice.WrapChunked(g.chunked, nil)) }, Want: nilDevice},
		"RecordReader.Close(ctx)":           {Call: func() error { return g.reader().Close(noCtx) }, Want: "close: " + nilCtx},
		"ArrayReader.Close(ctx)":            {Call: func() error { return g.arrays().Close(noCtx) }, Want: nilCtx},
		"RecordReader.Map(f)":               {Call: func() error { return g.reader().Map(nil).Err() }, Want: "read: f = nil, want a function"},
		"ArrayReader.Map(f)":                {Call: func() error { return g.arrays().Map(nil).Err() }, Want: "f = nil"},
		"RecordReader.HostReader(ctx)":      {Call: func() error { return g.hostReader(noCtx) }, Want: nilCtx},
		"RecordReader.HostReader(mem)":      {Call: func() error { return g.hostReader(background) }},
		"AsyncStream.Reader(ctx)": {Call: func() error {
			return g.asyncStream(func(s *cdevice.AsyncStream) error { return second(s.Reader(noCtx)) })
		}, Want: nilCtx},
		"AsyncStream.Close(ctx)": {Call: func() error {
			return g.asyncStream(func(s *cdevice.AsyncStream) error { return s.Close(noCtx) })
		}, Want: nilCtx},
		"ImportAsync(ctx)": {Call: func() error {
			handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
			defer func() { assert.Zero(g.t, *handler, "it is not filled") }()
			return second(cdevice.ImportAsync(noCtx, handler, 0))
		}, Want: nilCtx},
		"ImportAsync(handler)": {Call: func() error { return second(cdevice.ImportAsync(background, nil, 0)) }, Want: "ArrowAsyncDeviceStreamHandler" + nilStruct},
		"ImportAsync(opts...)": {Call: func() error {
			return g.asyncStream(func(*cdevice.AsyncStream) error { return nil }, nil)
		}, Want: nilOption},
	}
}

// An option that is given nil is an error wherever it is used.
func (g *given) optionRows() map[string]nilargs.Row {
	imported := func(opts ...in) error {
		array := exportedBatch[cdevice.CArrowDeviceArray](g)
		err := second(cdevice.ImportRecordBatch(array, g.schema(), opts...))
		assert.Equal(g.t, err, second(cdevice.ImportRecordReader(exportedReader[cdevice.CArrowDeviceArrayStream](g), opts...)))
		assert.Equal(g.t, err, second(cdevice.ImportAsync(background, new(cdevice.CArrowAsyncDeviceStreamHandler), 0, opts...)))
		assert.Equal(g.t, err, second(cdevice.ImportArray(exportedOne[cdata.CArrowArray](g), g.field(), opts...)))
		assert.Error(g.t, second(cdevice.ImportRecordBatchWithSchema(exportedBatch[cdevice.CArrowDeviceArray](g), nil, opts...)), "also where the input is refused")
		assert.Zero(g.t, array.Array.Release, "it is taken")
		return err
	}
	return map[string]nilargs.Row{
		"WithDevice(dev)": {Call: func() error { return imported(cdevice.WithDevice((*cudaalloc.Device)(nil))) }, Want: "import: WithDevice = nil, want a device"},
		"WithReleaser(f)": {Call: func() error { return imported(cdevice.WithReleaser(nil)) }, Want: "WithReleaser = nil, want a function"},
		"WithStream(s)": {Call: func() error {
			err := second(g.batch.CopyTo(background, g.host, cdevice.WithStream(nil)))
			assert.Equal(g.t, err, second(g.array.CopyToHost(background, nil, cdevice.WithStream((*cudaalloc.Stream)(nil)))))
			assert.Equal(g.t, err, second(g.reader().CopyTo(background, g.host, cdevice.WithStream(nil))))
			return err
		}, Want: "copy: WithStream = nil, want a stream"},
	}
}

// A struct that is not there has nothing to release.
func (g *given) releaseRows() map[string]nilargs.Row {
	return map[string]nilargs.Row{"ReleaseStruct(s)": {Call: func() error {
		cdevice.ReleaseStruct((*cdevice.CArrowDeviceArray)(nil))
		cdevice.ReleaseStruct((*cdevice.CArrowDeviceArrayStream)(nil))
		cdevice.ReleaseStruct((*cdevice.CArrowAsyncDeviceStreamHandler)(nil))
		cdevice.ReleaseStruct((*cdata.CArrowArray)(nil))
		cdevice.ReleaseStruct((*cdata.CArrowArrayStream)(nil))
		cdevice.ReleaseStruct((*cdata.CArrowSchema)(nil))
		return nil
	}}}
}
