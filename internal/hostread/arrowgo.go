package hostread

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// ReleaseAll releases the arrays.
func ReleaseAll(arrays []arrow.Array) {
	for _, a := range arrays {
		a.Release()
	}
}

// CheckColumn returns an error if arrow-go would not take the array for a column of the field: if the
// program's own types say that they are not equal.
func CheckColumn(f arrow.Field, column arrow.Array) (err error) {
	defer RecoverArrow(&err, func() {})
	if !arrow.TypeEqual(f.Type, column.DataType()) {
		return fielderr.Invalid(fielderr.OpRead, "type", column.DataType(), f.Type)
	}
	return nil
}

// NewRecordBatch is array.NewRecordBatchWithMetadata, with its panics as errors.
func NewRecordBatch(schema *arrow.Schema, columns []arrow.Array, rows int64, metadata arrow.Metadata) (rec arrow.RecordBatch, err error) {
	defer RecoverArrow(&err, func() {})
	return array.NewRecordBatchWithMetadata(schema, columns, rows, metadata), nil
}

// RecoverArrow turns arrow-go's panics about inconsistent data into errors. A constructor that
// panics keeps the references that it took so far; abandon releases the memory in spite of them.
func RecoverArrow(err *error, abandon func()) {
	if v := recover(); v != nil {
		abandon()
		*err = fielderr.New(fielderr.OpRead, "data", nil, nil, fmt.Errorf("%w: arrow-go: %v", arrow.ErrInvalid, v))
	}
}
