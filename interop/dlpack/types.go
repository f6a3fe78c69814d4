package dlpack

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// numbers are the types of elements that both sides have.
var numbers = map[DataType]arrow.DataType{
	{Code: Int, Bits: 8, Lanes: 1}:    arrow.PrimitiveTypes.Int8,
	{Code: Int, Bits: 16, Lanes: 1}:   arrow.PrimitiveTypes.Int16,
	{Code: Int, Bits: 32, Lanes: 1}:   arrow.PrimitiveTypes.Int32,
	{Code: Int, Bits: 64, Lanes: 1}:   arrow.PrimitiveTypes.Int64,
	{Code: UInt, Bits: 8, Lanes: 1}:   arrow.PrimitiveTypes.Uint8,
	{Code: UInt, Bits: 16, Lanes: 1}:  arrow.PrimitiveTypes.Uint16,
	{Code: UInt, Bits: 32, Lanes: 1}:  arrow.PrimitiveTypes.Uint32,
	{Code: UInt, Bits: 64, Lanes: 1}:  arrow.PrimitiveTypes.Uint64,
	{Code: Float, Bits: 16, Lanes: 1}: arrow.FixedWidthTypes.Float16,
	{Code: Float, Bits: 32, Lanes: 1}: arrow.PrimitiveTypes.Float32,
	{Code: Float, Bits: 64, Lanes: 1}: arrow.PrimitiveTypes.Float64,
}

var dtypes = func() map[arrow.Type]DataType {
	byType := make(map[arrow.Type]DataType, len(numbers))
	for d, t := range numbers {
		byType[t.ID()] = d
	}
	return byType
}()

// maxDims is the maximum number of dimensions: the depth of types that package cdevice accepts, and
// the most that NumPy and PyTorch have.
const maxDims = 64

// storage returns the type that the buffers are laid out as.
func storage(dt arrow.DataType) arrow.DataType {
	for {
		extension, ok := dt.(arrow.ExtensionType)
		if !ok {
			return dt
		}
		dt = extension.StorageType()
	}
}

// dimensions returns the sizes of the dimensions below the first, and the type of the elements.
func dimensions(dt arrow.DataType) (inner []int64, element DataType, err error) {
	at := storage(dt)
	for {
		list, ok := at.(*arrow.FixedSizeListType)
		if !ok {
			break
		}
		if inner == nil {
			inner = make([]int64, 0, 3) // most tensors have at most 4 dimensions
		}
		inner = append(inner, int64(list.Len()))
		at = storage(list.Elem())
	}
	element, ok := dtypes[at.ID()]
	if len(inner) >= maxDims {
		return nil, element, fielderr.New(opExport, "Array.DataType", fielderr.Type(dt), fmt.Sprintf("at most %d dimensions", maxDims), arrow.ErrNotImplemented)
	}
	if !ok {
		return nil, element, fielderr.New(opExport, "Array.DataType", fielderr.Type(dt), instead(at), arrow.ErrNotImplemented)
	}
	return inner, element, nil
}

const wantNumbers = "integers or floats, or fixed_size_list of them"

// instead returns the types that can be exported, and why this one cannot.
func instead(element arrow.DataType) string {
	switch element.ID() {
	case arrow.BOOL:
		return wantNumbers + " (Arrow's bool is a bit and DLPack's a byte: cast to uint8)"
	case arrow.DATE32, arrow.DATE64, arrow.TIME32, arrow.TIME64, arrow.TIMESTAMP, arrow.DURATION, arrow.INTERVAL_MONTHS:
		return fmt.Sprintf("%s (DLPack has no times: cast to int%d)", wantNumbers, element.(arrow.FixedWidthDataType).BitWidth())
	case arrow.INTERVAL_DAY_TIME, arrow.INTERVAL_MONTH_DAY_NANO:
		return wantNumbers + " (DLPack has no intervals)"
	case arrow.DECIMAL32, arrow.DECIMAL64, arrow.DECIMAL128, arrow.DECIMAL256:
		return wantNumbers + " (DLPack has no decimals: cast to int64 or float64)"
	case arrow.DICTIONARY:
		return wantNumbers + " (DLPack has no dictionaries: export the indices or the values)"
	case arrow.STRUCT, arrow.SPARSE_UNION, arrow.DENSE_UNION:
		return wantNumbers + " (the elements of a tensor have one type: export the fields)"
	case arrow.STRING, arrow.BINARY, arrow.LARGE_STRING, arrow.LARGE_BINARY, arrow.STRING_VIEW, arrow.BINARY_VIEW,
		arrow.LIST, arrow.LARGE_LIST, arrow.LIST_VIEW, arrow.LARGE_LIST_VIEW, arrow.MAP:
		return wantNumbers + " (the elements of a tensor have one size)"
	}
	return wantNumbers
}

// elementType returns the Arrow type of a tensor's elements.
func elementType(d DataType) (arrow.DataType, error) {
	if d.Lanes != 1 {
		return nil, fielderr.New(opImport, "dtype.lanes", d.Lanes, "1: Arrow has no vector types", arrow.ErrNotImplemented)
	}
	if dt, ok := numbers[d]; ok {
		return dt, nil
	}
	return nil, fielderr.New(opImport, "dtype", describe(d), "int or uint of 8 to 64 bits, float of 16 to 64 bits"+reinterpret(d.Code), arrow.ErrNotImplemented)
}

var codes = map[uint8]string{Int: "int", UInt: "uint", Float: "float", 3: "opaque handle", 4: "bfloat", 5: "complex", 6: "bool"}

func describe(d DataType) string {
	name, ok := codes[d.Code]
	if !ok {
		name = "code"
	}
	return fmt.Sprintf("%d (%s of %d bits)", d.Code, name, d.Bits)
}

// reinterpret returns how the producer can pass data of a type that Arrow does not have.
func reinterpret(code uint8) string {
	switch code {
	case 4:
		return " (Arrow has no bfloat16: view it as uint16)"
	case 5:
		return " (Arrow has no complex numbers: view them as float with a last dimension of 2)"
	case 6:
		return " (Arrow's bool is a bit and DLPack's a byte: view it as uint8)"
	}
	return ""
}
