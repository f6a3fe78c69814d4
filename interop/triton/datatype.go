package triton

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// The operations that errors name: making a region or outputs, replacing its contents, sending a request, reading outputs,
// reading metadata, comparing a request with it.
const (
	opRegion     = "triton: region"
	opUnregister = "triton: unregister"
	opInfer      = "triton: infer"
	opBatch      = "triton: batch"
	opWrite      = "triton: write"
	opMetadata   = "triton: metadata"
	opModel      = "triton: model"
)

// A datatype is the type of a tensor's elements.
type datatype struct {
	name  string // Triton's
	width int64  // the bytes of an element; of BYTES, those of its length
	form  form
	arrow arrow.DataType // the column's, or that of the innermost elements of its fixed-size lists
}

// A form is how the elements of a tensor differ from those of the column.
type form int

const (
	same   form = iota // they do not
	bits               // Arrow's are bits, and Triton's are bytes of 0 or 1
	values             // Triton's are preceded by their length, a uint32
)

// datatypes are the types of Triton. It has no dates and times: they become numbers.
var datatypes = map[arrow.Type]datatype{
	arrow.INT8: {"INT8", 1, same, nil}, arrow.INT16: {"INT16", 2, same, nil}, arrow.INT32: {"INT32", 4, same, nil}, arrow.INT64: {"INT64", 8, same, nil},
	arrow.UINT8: {"UINT8", 1, same, nil}, arrow.UINT16: {"UINT16", 2, same, nil}, arrow.UINT32: {"UINT32", 4, same, nil}, arrow.UINT64: {"UINT64", 8, same, nil},
	arrow.FLOAT16: {"FP16", 2, same, nil}, arrow.FLOAT32: {"FP32", 4, same, nil}, arrow.FLOAT64: {"FP64", 8, same, nil},
	arrow.DATE32: {"INT32", 4, same, nil}, arrow.DATE64: {"INT64", 8, same, nil}, arrow.TIME32: {"INT32", 4, same, nil}, arrow.TIME64: {"INT64", 8, same, nil},
	arrow.TIMESTAMP: {"INT64", 8, same, nil}, arrow.DURATION: {"INT64", 8, same, nil},
	arrow.BOOL:   {"BOOL", 1, bits, nil},
	arrow.STRING: {"BYTES", lengthSize, values, nil}, arrow.LARGE_STRING: {"BYTES", lengthSize, values, nil}, arrow.STRING_VIEW: {"BYTES", lengthSize, values, nil},
	arrow.BINARY: {"BYTES", lengthSize, values, nil}, arrow.LARGE_BINARY: {"BYTES", lengthSize, values, nil}, arrow.BINARY_VIEW: {"BYTES", lengthSize, values, nil},
}

// elements returns the type of the elements of a column, and the lengths of the fixed-size lists
// around them.
func elements(dt arrow.DataType) (of datatype, lists []int64, err error) {
	for {
		switch t := dt.(type) {
		case arrow.ExtensionType:
			if t.ExtensionName() == "arrow.bool8" {
				return datatype{"BOOL", 1, same, t.StorageType()}, lists, nil
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
			return of, nil, unsupported(dt)
		}
		of.arrow = dt
		return of, lists, nil
	}
}

// elementsInPlace is elements, for a column whose memory is the tensor.
func elementsInPlace(dt arrow.DataType) (of datatype, lists []int64, err error) {
	of, lists, err = elements(dt)
	if err == nil && of.form != same {
		err = unsupported(of.arrow)
	}
	return of, lists, err
}

func unsupported(dt arrow.DataType) error {
	return fielderr.New(opRegion, "type", fielderr.Type(dt), instead(dt), arrow.ErrNotImplemented)
}

// instead returns the remedy for a type that is not supported.
func instead(dt arrow.DataType) string {
	switch dt.ID() {
	case arrow.BOOL:
		return "the extension type arrow.bool8, or system shared memory: a BOOL of Triton is a byte, and Arrow's is a bit"
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW, arrow.BINARY, arrow.LARGE_BINARY, arrow.BINARY_VIEW:
		return "numbers, or system shared memory: the BYTES of Triton have a length before each value"
	case arrow.DICTIONARY:
		return "numbers: the indices of a dictionary can be a column of their own"
	}
	return "numbers, arrow.bool8, or fixed-size lists of them"
}
