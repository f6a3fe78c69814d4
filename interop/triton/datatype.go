package triton

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// The operations that errors name: making a region or outputs, sending a request, reading outputs, reading metadata, using it.
const (
	opRegion   = "triton: region"
	opInfer    = "triton: infer"
	opBatch    = "triton: batch"
	opMetadata = "triton: metadata"
	opModel    = "triton: model"
)

// A datatype is the type of a tensor's elements.
type datatype struct {
	name  string // Triton's
	width int64  // the bytes of an element
}

// datatypes are the types whose values Triton stores as Arrow does. It has no dates and times: they become numbers.
var datatypes = map[arrow.Type]datatype{
	arrow.INT8: {"INT8", 1}, arrow.INT16: {"INT16", 2}, arrow.INT32: {"INT32", 4}, arrow.INT64: {"INT64", 8},
	arrow.UINT8: {"UINT8", 1}, arrow.UINT16: {"UINT16", 2}, arrow.UINT32: {"UINT32", 4}, arrow.UINT64: {"UINT64", 8},
	arrow.FLOAT16: {"FP16", 2}, arrow.FLOAT32: {"FP32", 4}, arrow.FLOAT64: {"FP64", 8},
	arrow.DATE32: {"INT32", 4}, arrow.DATE64: {"INT64", 8}, arrow.TIME32: {"INT32", 4}, arrow.TIME64: {"INT64", 8},
	arrow.TIMESTAMP: {"INT64", 8}, arrow.DURATION: {"INT64", 8},
}

// elements returns the type of the elements of a column, and the lengths of the fixed-size lists
// around them.
func elements(dt arrow.DataType) (of datatype, lists []int64, err error) {
	for {
		switch t := dt.(type) {
		case arrow.ExtensionType:
			if t.ExtensionName() == "arrow.bool8" {
				return datatype{"BOOL", 1}, lists, nil
			}
			dt = t.StorageType()
			continue
		case *arrow.FixedSizeListType:
			if t.Len() < 1 {
				return of, nil, fielderr.Invalid(opRegion, "type", fielderr.Type(dt), "lists of at least one element")
			}
			lists, dt = append(lists, int64(t.Len())), t.Elem()
			continue
		}
		of, ok := datatypes[dt.ID()]
		if !ok {
			return of, nil, fielderr.New(opRegion, "type", fielderr.Type(dt), instead(dt), arrow.ErrNotImplemented)
		}
		return of, lists, nil
	}
}

// instead returns the remedy for a type that is not supported.
func instead(dt arrow.DataType) string {
	switch dt.ID() {
	case arrow.BOOL:
		return "the extension type arrow.bool8: a BOOL of Triton is a byte, and Arrow's is a bit"
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW, arrow.BINARY, arrow.LARGE_BINARY, arrow.BINARY_VIEW:
		return "numbers: the BYTES of Triton have a length before each value"
	case arrow.DICTIONARY:
		return "numbers: the indices of a dictionary can be a column of their own"
	}
	return "numbers, arrow.bool8, or fixed-size lists of them"
}
