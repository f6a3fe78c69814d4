package cdevice_test

import (
	"iter"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// numberedSchema is the schema of numbered batches.
var numberedSchema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

// numberedRecord is a record batch of arrow-go with n in its only row.
func numberedRecord(n int) arrow.RecordBatch {
	b := array.NewRecordBuilder(offHeap, numberedSchema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(int64(n))
	return b.NewRecordBatch()
}

// numberedBatch is a batch of one row with n in it, which the caller releases.
func numberedBatch(t testing.TB, n int) *cdevice.RecordBatch {
	t.Helper()
	rec := numberedRecord(n)
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	return b
}

// numbered are batches of one row with their number in it.
func numbered(t testing.TB, n int) []*cdevice.RecordBatch {
	t.Helper()
	batches := make([]*cdevice.RecordBatch, n)
	for i := range batches {
		batches[i] = numberedBatch(t, i)
		t.Cleanup(batches[i].Release)
	}
	return batches
}

// numberOf reads a batch of numbered.
func numberOf(t testing.TB, b *cdevice.RecordBatch) int {
	t.Helper()
	view, err := b.HostView(background)
	require.NoError(t, err)
	defer view.Release()
	return int(view.Column(0).(*array.Int64).Value(0))
}

// numberIn reads a record of numberedRecord.
func numberIn(rec arrow.RecordBatch) int { return int(rec.Column(0).(*array.Int64).Value(0)) }

// numbersOf reads a reader to its end.
func numbersOf(t testing.TB, all iter.Seq2[*cdevice.RecordBatch, error]) (numbers []int, err error) {
	t.Helper()
	for b, err := range all {
		if err != nil {
			assert.Nil(t, b)
			return numbers, err
		}
		numbers = append(numbers, numberOf(t, b))
	}
	return numbers, nil
}

// upTo returns 0, 1, ... n-1: the values that numbersOf reads of numbered.
func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}
