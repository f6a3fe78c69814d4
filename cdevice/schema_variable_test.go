package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// A variable of type arrow.Schema may be assigned another schema between two uses.

// recordsOfSeveralSchemas are record batches of which each pair differs in what a plan knows.
func recordsOfSeveralSchemas(t *testing.T) []arrow.RecordBatch {
	t.Helper()
	int64s := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3,4]`)
	int8s := fromJSON(t, arrow.PrimitiveTypes.Int8, `[5,6,7,8]`)
	words := fromJSON(t, arrow.BinaryTypes.String, `["a","b",null,"d"]`)
	lists := fromJSON(t, arrow.ListOf(arrow.PrimitiveTypes.Int16), `[[1],[],[2,3],null]`)
	var all []arrow.RecordBatch
	for _, columns := range [][]arrow.Array{{int64s}, {int8s}, {int64s, words}, {lists}, {words, int8s, lists}, {}} {
		fields := make([]arrow.Field, len(columns))
		for i, c := range columns {
			fields[i] = arrow.Field{Name: string(rune('a' + i)), Type: c.DataType(), Nullable: true}
		}
		rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 4)
		t.Cleanup(rec.Release)
		all = append(all, rec)
	}
	return all
}

func TestSchemaVariableThatIsAssignedAnew(t *testing.T) {
	records := recordsOfSeveralSchemas(t)
	type trip = func(t *testing.T, b *cdevice.RecordBatch, s *arrow.Schema) (*cdevice.RecordBatch, error)
	var imported trip = func(t *testing.T, b *cdevice.RecordBatch, s *arrow.Schema) (*cdevice.RecordBatch, error) {
		out := garbageArray()
		require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
		return cdevice.ImportRecordBatchWithSchema(out, s)
	}
	for name, through := range map[string]trip{
		"device import": imported,
		"plain import": func(t *testing.T, b *cdevice.RecordBatch, s *arrow.Schema) (*cdevice.RecordBatch, error) {
			out := garbagePlain()
			require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
			return cdevice.ImportRecordBatchWithSchema(out, s)
		},
		"wrapped": func(t *testing.T, b *cdevice.RecordBatch, s *arrow.Schema) (*cdevice.RecordBatch, error) {
			rec := array.NewRecordBatch(s, viewOf(t, b).Columns(), b.NumRows())
			defer rec.Release()
			return imported(t, wrap(t, rec), s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			var s arrow.Schema
			var kept []*cdevice.RecordBatch
			for _, rec := range records {
				s = *rec.Schema()
				b, err := through(t, wrap(t, rec), &s)
				require.NoError(t, err)
				require.NoError(t, b.ValidateFull(background))
				assert.True(t, sameRecord(t, rec, b))
				kept = append(kept, b)
			}
			for i, b := range kept { // s has the schema of the last one
				assert.True(t, b.Schema().Equal(records[i].Schema()), "schema of batch %d", i)
				sameThroughCData(t, records[i], b)
				b.Release()
			}
		})
	}
}

// sameThroughCData exports a batch with its schema, and compares what arrow-go imports with rec.
func sameThroughCData(t *testing.T, rec arrow.RecordBatch, b *cdevice.RecordBatch) {
	t.Helper()
	out, schema := garbagePlain(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, schema))
	got, err := cdata.ImportCRecordBatch(out, schema)
	require.NoError(t, err)
	defer got.Release()
	assert.True(t, array.RecordEqual(rec, got), "want %v\ngot  %v", rec, got)
}
