//go:build cgo

package cdata_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/arrio"
	arrowcdata "github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Each of the two packages exports what each imports: the result is the original. What arrow-go cannot do, by
// docs/upstream.md, is left out.

// side is one of the packages.
type side struct {
	name                  string
	memory                memory.Allocator // of what it exports
	exportArray           func(arrow.Array, *cdata.CArrowArray, *cdata.CArrowSchema)
	importArray           func(*cdata.CArrowArray, *cdata.CArrowSchema) (arrow.Field, arrow.Array, error)
	importArrayWithType   func(*cdata.CArrowArray, arrow.DataType) (arrow.Array, error)
	exportBatch           func(arrow.RecordBatch, *cdata.CArrowArray, *cdata.CArrowSchema)
	importBatch           func(*cdata.CArrowArray, *cdata.CArrowSchema) (arrow.RecordBatch, error)
	importBatchWithSchema func(*cdata.CArrowArray, *arrow.Schema) (arrow.RecordBatch, error)
	exportSchema          func(*arrow.Schema, *cdata.CArrowSchema)
	importSchema          func(*cdata.CArrowSchema) (*arrow.Schema, error)
	exportReader          func(array.RecordReader, *cdata.CArrowArrayStream)
	importReader          func(*cdata.CArrowArrayStream, *arrow.Schema) (arrio.Reader, error)
	exportAsync           func(*arrow.Schema, <-chan cdata.RecordMessage, *cdata.CArrowAsyncDeviceStreamHandler) error
	importAsync           func(context.Context, uint64, *cdata.CArrowAsyncDeviceStreamHandler) <-chan cdata.AsyncRecordBatchStream
}

var ourSide = &side{
	"cdata", memory.NewGoAllocator(),
	cdata.ExportArrowArray, cdata.ImportCArray, cdata.ImportCArrayWithType,
	cdata.ExportArrowRecordBatch, cdata.ImportCRecordBatch, cdata.ImportCRecordBatchWithSchema,
	cdata.ExportArrowSchema, cdata.ImportCArrowSchema,
	cdata.ExportRecordReader, cdata.ImportCRecordReader,
	cdata.ExportAsyncRecordBatchStream, cdata.CreateAsyncDeviceStreamHandler,
}

var theirSide = &side{
	"arrow-go", mallocator.NewMallocator(), // it does not pin
	arrowcdata.ExportArrowArray, arrowcdata.ImportCArray, arrowcdata.ImportCArrayWithType,
	arrowcdata.ExportArrowRecordBatch, arrowcdata.ImportCRecordBatch, arrowcdata.ImportCRecordBatchWithSchema,
	arrowcdata.ExportArrowSchema, arrowcdata.ImportCArrowSchema,
	arrowcdata.ExportRecordReader, arrowcdata.ImportCRecordReader,
	arrowcdata.ExportAsyncRecordBatchStream, arrowcdata.CreateAsyncDeviceStreamHandler,
}

// finding is the number in docs/upstream.md of the reason why arrow-go's package changes an array on its way, or "".
func finding(from, to *side, c cases.Case, v cases.Variant) string {
	id := c.Type.ID()
	sliced := from == theirSide && (v == cases.Sliced || v == cases.EmptyPart)
	dictionary, _ := c.Type.(*arrow.DictionaryType)
	switch {
	case sliced && id == arrow.STRUCT:
		return "01"
	case sliced && id == arrow.SPARSE_UNION:
		return "02"
	case underASan && from == theirSide && (id == arrow.STRING_VIEW || id == arrow.BINARY_VIEW):
		return "03"
	case to == theirSide && dictionary != nil && dictionary.Ordered:
		return "04"
	}
	return ""
}

// takesType reports whether an import with a type that is known takes that type: arrow-go's lacks some extensions (06).
func takesType(to *side, dt arrow.DataType) bool { return to == ourSide || dt.ID() != arrow.EXTENSION }

// eachPair runs body for each exporter and importer, and checks that both release everything, also Go memory. While live
// objects are listed, exports do not go their short way, so it runs body once more without the list.
func eachPair(t *testing.T, body func(t *testing.T, from, to *side, mem memory.Allocator, c cases.Case)) {
	for _, from := range []*side{ourSide, theirSide} {
		for _, to := range []*side{ourSide, theirSide} {
			for _, c := range cases.All() {
				for _, listed := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s to %s/%s/listed %t", from.name, to.name, c.Name, listed), func(t *testing.T) {
						if listed {
							cdevicetest.CheckLeaks(t)
						}
						mem := memory.NewCheckedAllocator(from.memory)
						defer mem.AssertSize(t, 0)
						body(t, from, to, mem, c)
					})
				}
			}
		}
	}
}

// eachPairAndVariant is eachPair with an array of each case in each variant, without those that have a finding.
func eachPairAndVariant(t *testing.T, body func(t *testing.T, from, to *side, arr arrow.Array)) {
	eachPair(t, func(t *testing.T, from, to *side, mem memory.Allocator, c cases.Case) {
		for _, v := range cases.Variants {
			if finding(from, to, c, v) != "" {
				continue
			}
			t.Run(string(v), func(t *testing.T) {
				arr, err := c.Array(mem, v)
				require.NoError(t, err)
				defer arr.Release()
				body(t, from, to, arr)
			})
		}
	})
}

func assertSameArray(t *testing.T, want, got arrow.Array) {
	t.Helper()
	wantType, gotType := want.DataType(), got.DataType()
	assert.True(t, arrow.TypeEqual(wantType, gotType, arrow.CheckMetadata()), "want %v, got %v", wantType, gotType)
	assert.True(t, array.Equal(want, got), "want %v\n got %v", want, got)
	assert.Equal(t, want.NullN(), got.NullN(), "null count")
}

func assertSameBatch(t *testing.T, want, got arrow.RecordBatch) {
	t.Helper()
	assert.True(t, want.Schema().Equal(got.Schema()), "want %v, got %v", want.Schema(), got.Schema())
	assert.True(t, array.RecordEqual(want, got), "want %v\n got %v", want, got)
}

// Where the schema is imported as well, both packages make arrays of extension types arrays of their storage, and name
// the type in the metadata of the field. The functions below do so.

func asStorage(arr arrow.Array) arrow.Array {
	if ext, ok := arr.(array.ExtensionArray); ok {
		return ext.Storage()
	}
	return arr
}

func schemaAsStorage(schema *arrow.Schema) *arrow.Schema {
	fields := schema.Fields()
	for i, f := range fields {
		if ext, ok := f.Type.(arrow.ExtensionType); ok {
			keys := append(f.Metadata.Keys(), "ARROW:extension:name", "ARROW:extension:metadata")
			values := append(f.Metadata.Values(), ext.ExtensionName(), ext.Serialize())
			fields[i].Type, fields[i].Metadata = ext.StorageType(), arrow.NewMetadata(keys, values)
		}
	}
	md := schema.Metadata()
	return arrow.NewSchema(fields, &md)
}

// batchAsStorage returns a batch that is the caller's.
func batchAsStorage(rec arrow.RecordBatch) arrow.RecordBatch {
	var columns []arrow.Array
	for _, c := range rec.Columns() {
		columns = append(columns, asStorage(c))
	}
	return array.NewRecordBatch(schemaAsStorage(rec.Schema()), columns, rec.NumRows())
}

// batchWith returns a batch of a column, and of its rows once more. It is the caller's.
func batchWith(arr arrow.Array) arrow.RecordBatch {
	md := arrow.NewMetadata([]string{"key", "empty"}, []string{"value", ""})
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "first", Type: arr.DataType(), Nullable: true, Metadata: md},
		{Name: "second", Type: arr.DataType(), Nullable: true},
	}, &md)
	return array.NewRecordBatch(schema, []arrow.Array{arr, arr}, int64(arr.Len()))
}

func TestPairsExchangeArrays(t *testing.T) {
	eachPairAndVariant(t, func(t *testing.T, from, to *side, arr arrow.Array) {
		var a cdata.CArrowArray
		var s cdata.CArrowSchema
		from.exportArray(arr, &a, &s)
		field, got, err := to.importArray(&a, &s)
		require.NoError(t, err)
		defer got.Release()
		assert.True(t, arrow.TypeEqual(asStorage(arr).DataType(), field.Type))
		assertSameArray(t, asStorage(arr), got)
	})
}

func TestPairsExchangeBatches(t *testing.T) {
	eachPairAndVariant(t, func(t *testing.T, from, to *side, arr arrow.Array) {
		rec := batchWith(arr)
		defer rec.Release()
		var a, b cdata.CArrowArray
		var s cdata.CArrowSchema
		from.exportBatch(rec, &a, &s)
		got, err := to.importBatch(&a, &s)
		require.NoError(t, err)
		defer got.Release()
		want := batchAsStorage(rec)
		defer want.Release()
		assertSameBatch(t, want, got)
		if !takesType(to, arr.DataType()) {
			return
		}
		from.exportBatch(rec, &b, nil)
		again, err := to.importBatchWithSchema(&b, rec.Schema())
		require.NoError(t, err)
		defer again.Release()
		assertSameBatch(t, rec, again)
	})
}

// batchesOf returns a batch of each variant that both sides can exchange. They are the caller's.
func batchesOf(t *testing.T, from, to *side, mem memory.Allocator, c cases.Case) (all []arrow.RecordBatch) {
	t.Helper()
	for _, v := range cases.Variants {
		if finding(from, to, c, v) == "" {
			arr, err := c.Array(mem, v)
			require.NoError(t, err)
			all = append(all, batchWith(arr))
			arr.Release()
		}
	}
	return all
}

func TestPairsExchangeStreams(t *testing.T) {
	eachPair(t, func(t *testing.T, from, to *side, mem memory.Allocator, c cases.Case) {
		batches := batchesOf(t, from, to, mem, c)
		if len(batches) == 0 {
			return
		}
		rdr, err := array.NewRecordReader(batches[0].Schema(), batches)
		require.NoError(t, err)
		var s cdata.CArrowArrayStream
		from.exportReader(rdr, &s)
		rdr.Release()
		imported, err := to.importReader(&s, nil)
		require.NoError(t, err)
		var got []arrow.RecordBatch // which outlive the stream
		for {
			rec, err := imported.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			rec.Retain()
			got = append(got, rec)
		}
		imported.(array.RecordReader).Release()
		require.Len(t, got, len(batches))
		for i, rec := range batches {
			want := batchAsStorage(rec)
			assertSameBatch(t, want, got[i])
			want.Release()
			rec.Release()
			got[i].Release()
		}
	})
}

func TestPairsExchangeAsyncStreams(t *testing.T) {
	md := arrow.NewMetadata([]string{"number"}, []string{"one"})
	eachPair(t, func(t *testing.T, from, to *side, mem memory.Allocator, c cases.Case) {
		if from == theirSide && (to == theirSide || underASan) {
			return // each task keeps a handle; and with itself, the end is a race
		}
		batches := batchesOf(t, from, to, mem, c)
		if len(batches) == 0 {
			return
		}
		handler := new(cdata.CArrowAsyncDeviceStreamHandler)
		streams := to.importAsync(context.Background(), 1, handler) // with more, arrow-go's asks a producer that is gone
		messages, done := make(chan cdata.RecordMessage, len(batches)), make(chan error, 1)
		for _, rec := range batches {
			rec.Retain()
			messages <- cdata.RecordMessage{Record: rec, AdditionalMetadata: md}
		}
		close(messages)
		go func() { done <- from.exportAsync(batches[0].Schema(), messages, handler) }()
		stream := <-streams
		require.NoError(t, stream.Err)
		assert.True(t, schemaAsStorage(batches[0].Schema()).Equal(stream.Schema))
		i := 0
		for message := range stream.Stream {
			require.NoError(t, message.Err)
			want := batchAsStorage(batches[i])
			assertSameBatch(t, want, message.Record)
			want.Release()
			assert.True(t, md.Equal(message.AdditionalMetadata))
			message.Record.Release()
			batches[i].Release()
			i++
		}
		assert.Equal(t, len(batches), i)
		assert.NoError(t, <-done)
	})
}

// A column is moved out of its batch, whose root a thread that Go has never seen releases before the column is
// imported, or after the import has ended. The program's own references are gone already.
func TestPairsReleaseInAnyOrder(t *testing.T) {
	eachPair(t, func(t *testing.T, from, to *side, mem memory.Allocator, c cases.Case) {
		if finding(from, to, c, cases.Nulls) != "" || !takesType(to, c.Type) {
			return
		}
		want, err := c.Array(memory.DefaultAllocator, cases.Nulls)
		require.NoError(t, err)
		defer want.Release()
		for _, rootFirst := range []bool{true, false} {
			root, column := new(abi.ArrowArray), new(abi.ArrowArray)
			exportNew(t, from, mem, c, root)
			child := abi.Slice[*abi.ArrowArray](root.Children, 2)[0]
			*column = *child
			child.Release = 0
			if rootFirst {
				require.NoError(t, cpeer.ReleaseOnThread(root))
				runtime.GC()
			}
			got, err := to.importArrayWithType((*cdata.CArrowArray)(unsafe.Pointer(column)), c.Type)
			require.NoError(t, err)
			assertSameArray(t, want, got)
			got.Release()
			if !rootFirst {
				require.NoError(t, cpeer.ReleaseOnThread(root))
			}
		}
	})
}

// exportNew exports a batch of a new array, to which only the struct holds a reference.
func exportNew(t *testing.T, from *side, mem memory.Allocator, c cases.Case, out *abi.ArrowArray) {
	t.Helper()
	arr, err := c.Array(mem, cases.Nulls)
	require.NoError(t, err)
	defer arr.Release()
	rec := batchWith(arr)
	defer rec.Release()
	from.exportBatch(rec, (*cdata.CArrowArray)(unsafe.Pointer(out)), nil)
}

// A schema with a field of each type.
func TestPairsExchangeSchemas(t *testing.T) {
	for _, from := range []*side{ourSide, theirSide} {
		for _, to := range []*side{ourSide, theirSide} {
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				cdevicetest.CheckLeaks(t)
				var fields []arrow.Field
				for i, c := range cases.All() {
					if finding(from, to, c, cases.Nulls) == "" {
						md := arrow.NewMetadata([]string{"case"}, []string{c.Name})
						fields = append(fields, arrow.Field{Name: c.Name, Type: c.Type, Nullable: i%2 == 0, Metadata: md})
					}
				}
				md := arrow.NewMetadata([]string{"a", "b", "\xff\x00"}, []string{"", "text", "\x00\xfe"})
				want := arrow.NewSchema(fields, &md)
				var s cdata.CArrowSchema
				from.exportSchema(want, &s)
				got, err := to.importSchema(&s)
				require.NoError(t, err)
				want = schemaAsStorage(want)
				assert.True(t, want.Equal(got), "want %v\n got %v", want, got)
				assert.True(t, want.Metadata().Equal(got.Metadata()))
			})
		}
	}
}
