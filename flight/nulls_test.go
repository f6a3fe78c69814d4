package flight_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
)

// uncounted returns data over the same buffers whose null counts are not known, at any depth.
func uncounted(a arrow.ArrayData) *array.Data {
	var children []arrow.ArrayData
	for _, child := range a.Children() {
		children = append(children, uncounted(child))
	}
	d := array.NewData(a.DataType(), a.Len(), a.Buffers(), children, array.UnknownNullCount, a.Offset())
	if values, _ := a.Dictionary().(*array.Data); values != nil {
		d.SetDictionary(uncounted(values))
	}
	return d
}

func requireUncounted(t *testing.T, a arrow.ArrayData) {
	t.Helper()
	assert.Equal(t, array.UnknownNullCount, a.NullN(), "%s", a.DataType())
	for _, child := range a.Children() {
		requireUncounted(t, child)
	}
	if values, _ := a.Dictionary().(*array.Data); values != nil {
		requireUncounted(t, values)
	}
}

// Null counts that are not known are sent, but not written to the arrays of the program, which may send them to several clients at once.
func TestNullCountsOfThePrograms(t *testing.T) {
	words := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	for _, column := range []arrow.Array{
		fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,null,3,null]`),
		fromJSON(t, arrow.StructOf(arrow.Field{Name: "x", Type: arrow.ListOf(arrow.PrimitiveTypes.Int8), Nullable: true}), `[{"x":[1,null]},null,{"x":null}]`),
		fromJSON(t, words, `["a",null,"b"]`),
		fromJSON(t, arrow.ListOf(words), `[["a",null],null]`),
	} {
		t.Run(column.DataType().String(), func(t *testing.T) {
			mine := uncounted(column.Data())
			rec := recordOfColumn(array.MakeFromData(mine))
			client := serve(t, &server{get: func(_ *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
				r := readerOf(t, device.CPUDevice(), rec.Schema(), rec, rec)
				defer r.Release()
				return flight.Send(stream, r)
			}}, flight.ServerOptions()...)
			var recs [2][]arrow.RecordBatch
			for i := range recs {
				r, err := get(client, "")
				require.NoError(t, err)
				recs[i], err = collect(r)
				require.NoError(t, err)
				require.Len(t, recs[i], 2)
			}
			requireUncounted(t, mine)
			for _, got := range append(recs[0], recs[1]...) {
				assert.Equal(t, column.NullN(), got.Column(0).NullN())
				assert.True(t, array.Equal(column, got.Column(0)), "%v", got)
			}
		})
	}
}
