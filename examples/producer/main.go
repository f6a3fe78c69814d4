//go:build !windows

// Command producer takes a batch from a library written in C, which fills the batch on the GPU without waiting for it.
//
//	go run ./cudasim/run go run ./examples/producer    # or without cudasim/run, on a real GPU
package main

// #include "producer.h"
import "C"

import (
	"context"
	"fmt"
	"log"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	_ "github.com/arrowdevice/arrowdevice/memory/cudaalloc" // waits for CUDA's events, and copies
)

var schema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int32}}, nil)

func main() {
	batch, err := produce(7, 4)
	if err != nil {
		log.Fatalf("%v; without a GPU: go run ./cudasim/run go run ./examples/producer", err)
	}
	defer batch.Release()                                   // calls release of the library, once
	rec, err := batch.CopyToHost(context.Background(), nil) // waits for the event; batch.WaitOn(stream) is for work on the GPU
	if err != nil {
		log.Fatal(err)
	}
	defer rec.Release()
	fmt.Println(rec.Column(0))
}

// produce returns a batch of the library, in its memory.
func produce(value int32, rows int64) (*cdevice.RecordBatch, error) {
	var out C.struct_ArrowDeviceArray
	if code := C.produce(C.int32_t(value), C.int64_t(rows), &out); code != 0 {
		return nil, fmt.Errorf("produce: CUDA error %d", code)
	}
	return cdevice.ImportRecordBatchWithSchema((*cdevice.CArrowDeviceArray)(unsafe.Pointer(&out)), schema)
}
