// Command consumer exports a record batch to a function written in C, which adds up a column
// and releases the batch.
package main

// #include <arrow_device.h>
//
// static int64_t total(struct ArrowDeviceArray* batch, struct ArrowSchema* schema) {
//   struct ArrowArray* column = batch->array.children[0];
//   const int64_t* values = (const int64_t*)column->buffers[1] + column->offset;
//   int64_t sum = 0;
//   for (int64_t i = 0; i < column->length; i++) sum += values[i];
//   batch->array.release(&batch->array); // the consumer's duty
//   schema->release(schema);
//   return sum;
// }
import "C"

import (
	"fmt"
	"log"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

func main() {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2, 3, 4}, nil)
	rec := b.NewRecordBatch()
	defer rec.Release()
	if err := export(rec); err != nil {
		log.Fatal(err)
	}
}

func export(rec arrow.RecordBatch) error {
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		return err
	}
	defer batch.Release() // the exported struct holds the memory on its own
	var out C.struct_ArrowDeviceArray
	var schema C.struct_ArrowSchema
	err = cdevice.ExportRecordBatch(batch, (*cdevice.CArrowDeviceArray)(unsafe.Pointer(&out)), (*cdata.CArrowSchema)(unsafe.Pointer(&schema)))
	if err == nil {
		fmt.Println("total:", C.total(&out, &schema))
	}
	return err
}
