package cdevice_test

import (
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/arrio"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// arrow-go's cdata as the peer of plain structs and streams, where it is right: its defects are in
// docs/upstream.md.

func TestCdataReadsPlainArrays(t *testing.T) {
	eachPlainCase(t, lostByTheirImport, func(t *testing.T, arr arrow.Array) {
		a := kept(cdevice.WrapArray(arr, device.CPUDevice()))(t)
		out, schema := new(cdata.CArrowArray), new(cdata.CArrowSchema)
		require.NoError(t, cdevice.ExportArray(a, out, schema))
		_, back, err := cdata.ImportCArray(out, schema)
		require.NoError(t, err)
		defer back.Release()
		assertEqualArrays(t, arr, back)
	})
}

func TestPlainArraysOfCdata(t *testing.T) {
	eachPlainCase(t, lostByTheirExport, func(t *testing.T, arr arrow.Array) {
		out, schema := new(cdata.CArrowArray), new(cdata.CArrowSchema)
		cdata.ExportArrowArray(arr, out, schema)
		back := kept(validated(cdevice.ImportArray(out, schema)))(t)
		view := kept(back.HostView(background))(t)
		assertEqualArrays(t, arr, view)
	})
}

// lostByTheirImport names the finding of docs/upstream.md about a type, or "".
func lostByTheirImport(dt arrow.DataType, _ cases.Variant) string {
	switch dt := dt.(type) {
	case *arrow.DictionaryType:
		if dt.Ordered {
			return "04"
		}
	case arrow.ExtensionType:
		return "06"
	}
	return ""
}

// lostByTheirExport is the same for arrays that cdata exports.
func lostByTheirExport(dt arrow.DataType, v cases.Variant) string {
	if underASan && isView(dt) {
		return "03" // a leak, which AddressSanitizer would report as ours
	}
	if v != cases.Sliced && v != cases.EmptyPart {
		return ""
	}
	switch dt.ID() {
	case arrow.STRUCT:
		return "01"
	case arrow.SPARSE_UNION:
		return "02"
	}
	return ""
}

// eachPlainCase runs body for each type that is not lost, with an array outside of the Go heap:
// cdata does not pin exported memory.
func eachPlainCase(t *testing.T, lost func(arrow.DataType, cases.Variant) string, body func(t *testing.T, arr arrow.Array)) {
	t.Helper()
	for _, c := range cases.All() {
		for _, v := range cases.Variants {
			if lost(c.Type, v) != "" {
				continue
			}
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				checkLeaks(t)
				arr, err := c.Array(offHeap, v)
				require.NoError(t, err)
				defer arr.Release()
				body(t, arr)
			})
		}
	}
}

// numberedReader is an arrow-go reader of n batches.
func numberedReader(t *testing.T, n int) array.RecordReader {
	t.Helper()
	var all []arrow.RecordBatch
	for i := range n {
		all = append(all, numberedRecord(i))
	}
	rdr, err := array.NewRecordReader(numberedSchema, all)
	require.NoError(t, err)
	for _, rec := range all {
		rec.Release()
	}
	return rdr
}

func TestCdataReadsPlainStreams(t *testing.T) {
	checkLeaks(t)
	for _, n := range []int{0, 1, 5} {
		s := exportPlain(t, asked(t, nil, numbered(t, n)...))
		r, err := cdata.ImportCRecordReader(s, nil)
		require.NoError(t, err)
		for i := range n {
			rec, err := r.Read()
			require.NoError(t, err)
			assert.EqualValues(t, i, rec.Column(0).(*array.Int64).Value(0))
		}
		_, err = r.Read()
		assert.Equal(t, io.EOF, err)
		r.(interface{ Release() }).Release()
	}
}

func TestCdataReadsErrorsOfPlainStreams(t *testing.T) {
	s := exportPlain(t, asked(t, errSource, numbered(t, 1)...))
	r, err := cdata.ImportCRecordReader(s, nil)
	require.NoError(t, err)
	_, err = r.Read()
	require.NoError(t, err)
	_, err = r.Read()
	assert.ErrorContains(t, err, errSource.Error())
	r.(interface{ Release() }).Release()
}

func TestPlainStreamsOfCdata(t *testing.T) {
	checkLeaks(t)
	for _, n := range []int{0, 1, 5} {
		rdr := numberedReader(t, n)
		s := new(cdata.CArrowArrayStream)
		cdata.ExportRecordReader(rdr, s)
		rdr.Release() // although it is documented otherwise; see docs/upstream.md, 14
		r, err := cdevice.ImportRecordReader(s)
		require.NoError(t, err)
		r.Map(valid)
		assert.True(t, numberedSchema.Equal(r.Schema()))
		numbers, err := numbersOf(t, r.All())
		require.NoError(t, err)
		assert.Len(t, numbers, n)
		r.Release()

		rdr = numberedReader(t, n)
		cdata.ExportRecordReader(rdr, s)
		rdr.Release()
		r, err = cdevice.ImportRecordReader(s)
		require.NoError(t, err)
		r.Release() // early
	}
}

func TestPlainStreamErrorsOfCdata(t *testing.T) {
	checkLeaks(t)
	s := new(cdata.CArrowArrayStream)
	cdata.ExportRecordReader(failing{err: errors.New("their source is on fire")}, s)
	r := kept(cdevice.ImportRecordReader(s))(t)
	assert.False(t, r.Next())
	var se *cdevice.ProducerError
	require.ErrorAs(t, r.Err(), &se)
	assert.Equal(t, "their source is on fire", se.Message)
}

// Our own streams give arrow-go's readers the rows that cdata's lose (docs/upstream.md, 01).
func TestSlicedStructsThroughPlainStreams(t *testing.T) {
	checkLeaks(t)
	rows := oneColumn(t, fromJSON(t, pointType, `[{"x":0,"s":"a"},{"x":1,"s":"b"},{"x":2,"s":"c"},{"x":3,"s":"d"},{"x":4,"s":"e"}]`))
	part := rows.NewSlice(2, 4)
	defer part.Release()
	rdr, err := array.NewRecordReader(rows.Schema(), []arrow.RecordBatch{part})
	require.NoError(t, err)
	from, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
	rdr.Release()
	require.NoError(t, err)
	in, err := cdevice.ImportRecordReader(exportPlain(t, from))
	require.NoError(t, err)
	var host arrio.Reader = readerOf{in.HostReader(background, nil)}
	in.Release()
	rec, err := host.Read()
	require.NoError(t, err)
	assert.Equal(t, `[{"s":"c","x":2},{"s":"d","x":3}]`, marshal(t, rec.Column(0)))
	host.(readerOf).Release()
}

// cdata's callbacks are Go, and pass their arguments to C: the allocation of a plain stream, or of
// its arrays, must hold no Go pointer.
func TestCdataStreamsImportedWithOptions(t *testing.T) {
	checkLeaks(t)
	rec := outsideTheHeap(t)
	for range 3 {
		rdr, err := array.NewRecordReader(rec.Schema(), []arrow.RecordBatch{rec, rec})
		require.NoError(t, err)
		s := new(cdata.CArrowArrayStream)
		cdata.ExportRecordReader(rdr, s)
		rdr.Release()
		keeps := new(int)
		r, err := cdevice.ImportRecordReader(s, cdevice.WithReleaser(func(release func()) { *keeps++; release() }))
		require.NoError(t, err)
		for b, err := range r.All() {
			require.NoError(t, err)
			runtime.GC()
			view, err := b.HostView(background)
			require.NoError(t, err)
			assert.True(t, array.RecordEqual(rec, view))
			view.Release()
		}
		r.Release()
		assert.Equal(t, 3, *keeps)
	}
}
