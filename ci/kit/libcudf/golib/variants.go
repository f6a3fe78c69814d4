//go:build cgo

package main

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// masked is the variant whose nulls were put over valid elements: there are elements in null lists, and valid children below
// a null struct. The values of a dictionary have nulls as well. Arrow allows that, and libcudf misreads it.
const masked cases.Variant = "masked"

func makeVariant(c cases.Case, v cases.Variant) (arrow.Array, error) {
	if v != masked {
		return c.Array(memory.DefaultAllocator, v)
	}
	valid, err := c.Array(memory.DefaultAllocator, cases.Valid)
	if err != nil {
		return nil, err
	}
	defer valid.Release()
	data := mask(valid.Data())
	defer data.Release()
	return array.MakeFromData(data), nil
}

// mask returns the data with nulls as second and as last element, and with nulls in a dictionary.
func mask(data arrow.ArrayData) arrow.ArrayData {
	bits := make([]byte, bitutil.BytesForBits(int64(data.Len())))
	bitutil.SetBitsTo(bits, 0, int64(data.Len()), true)
	bitutil.ClearBit(bits, 1)
	bitutil.ClearBit(bits, data.Len()-1)
	buffers := append([]*memory.Buffer{memory.NewBufferBytes(bits)}, data.Buffers()[1:]...)
	if data.DataType().ID() == arrow.DICTIONARY {
		values := mask(data.Dictionary())
		defer values.Release()
		return array.NewDataWithDictionary(data.DataType(), data.Len(), buffers, 2, 0, values.(*array.Data))
	}
	return array.NewData(data.DataType(), data.Len(), buffers, data.Children(), 2, 0)
}

// withoutCounts takes a batch, and returns it as one that was imported from a producer that has not counted nulls.
func withoutCounts(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
	defer b.Release()
	var out cdevice.CArrowDeviceArray
	var schema cdata.CArrowSchema
	if err := cdevice.ExportRecordBatch(b, &out, &schema); err != nil {
		return nil, err
	}
	root := abi.As[abi.ArrowArray](&out.Array)
	for _, child := range abi.Slice[uintptr](root.Children, int(root.NChildren)) {
		forgetCounts(abi.At[abi.ArrowArray](child))
	}
	return cdevice.ImportRecordBatch(&out, &schema)
}

func forgetCounts(a *abi.ArrowArray) {
	if a.NBuffers > 0 && *abi.At[uintptr](a.Buffers) != 0 && a.NullCount > 0 {
		a.NullCount = -1
	}
	for _, child := range abi.Slice[uintptr](a.Children, int(a.NChildren)) {
		forgetCounts(abi.At[abi.ArrowArray](child))
	}
	if a.Dictionary != 0 {
		forgetCounts(abi.At[abi.ArrowArray](a.Dictionary))
	}
}
