//go:build cgo

package cdata_test

import (
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowcdata "github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
)

func numbers(t *testing.T, values ...int64) arrow.RecordBatch {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	rec := b.NewRecordBatch()
	t.Cleanup(rec.Release)
	return rec
}

// Structs of one package are taken by the other.
func TestBothPackagesInOneProgram(t *testing.T) {
	rec := numbers(t, 1, 2, 3)
	exports := map[string]func(arrow.RecordBatch, *cdata.CArrowArray, *cdata.CArrowSchema){"ours": cdata.ExportArrowRecordBatch, "arrow-go's": arrowcdata.ExportArrowRecordBatch}
	imports := map[string]func(*cdata.CArrowArray, *cdata.CArrowSchema) (arrow.RecordBatch, error){"ours": cdata.ImportCRecordBatch, "arrow-go's": arrowcdata.ImportCRecordBatch}
	for from, export := range exports {
		for to, imp := range imports {
			t.Run(from+" to "+to, func(t *testing.T) {
				var a cdata.CArrowArray
				var s cdata.CArrowSchema
				export(rec, &a, &s)
				got, err := imp(&a, &s)
				require.NoError(t, err)
				defer got.Release()
				assert.True(t, array.RecordEqual(rec, got))
			})
		}
	}
}

func TestStreams(t *testing.T) {
	want := []arrow.RecordBatch{numbers(t, 1), numbers(t, 2, 3)}
	rdr, err := array.NewRecordReader(want[0].Schema(), want)
	require.NoError(t, err)
	defer rdr.Release()
	var s cdata.CArrowArrayStream
	cdata.ExportRecordReader(rdr, &s)
	got, err := cdata.ImportCRecordReader(&s, nil)
	require.NoError(t, err)
	defer got.(array.RecordReader).Release()
	for _, w := range want {
		rec, err := got.Read()
		require.NoError(t, err)
		assert.True(t, array.RecordEqual(w, rec))
		rec.Release() // as the comment of arrow-go says
	}
	_, err = got.Read()
	assert.True(t, err == io.EOF && errors.Is(err, io.EOF))
}
