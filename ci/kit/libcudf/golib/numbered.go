//go:build cgo

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("numbered_stream", numberedStream, pyextension.WithParams("batches"))
	pyextension.Func("compare_numbered", compareNumbered, pyextension.WithParams("number", "batch"))
}

// numbered is the job of a batch in a row of them. Its values, null counts and length depend on its number.
func numbered(number int64) job {
	return job{fmt.Sprintf("numbered/%d/table", number), table, func() ([]arrow.Array, error) {
		integers, texts := array.NewInt64Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
		defer integers.Release()
		defer texts.Release()
		for row := range 100 + number%64 {
			if (row+number)%7 == 0 {
				integers.AppendNull()
				texts.AppendNull()
				continue
			}
			integers.Append(number*1000 + row)
			texts.Append(fmt.Sprintf("batch %d, row %d", number, row))
		}
		return []arrow.Array{integers.NewArray(), texts.NewArray()}, nil
	}}
}

// numberedStream is a stream of numbered batches on the GPU, each made when it is asked for.
func numberedStream(batches int64) (*cdevice.RecordReader, error) {
	first, err := numberedBatch(0)
	if err != nil {
		return nil, err
	}
	defer first.Release()
	next := int64(0)
	read := func(context.Context) (*cdevice.RecordBatch, error) {
		if next == batches {
			return nil, io.EOF
		}
		next++
		return numberedBatch(next - 1)
	}
	return cdevice.NewRecordReaderFunc(context.Background(), first.Schema(), device.CUDA, read, nil)
}

// numberedEnds counts numbered batches that were handed on with pending work, and whose exchange has not ended.
var numberedEnds sync.WaitGroup

// numberedBatch is a batch whose values arrive later.
func numberedBatch(number int64) (*cdevice.RecordBatch, error) {
	x, err := begin(numbered(number))
	if err != nil {
		return nil, err
	}
	b := x.made.value().(*cdevice.RecordBatch)
	numberedEnds.Go(func() {
		time.Sleep(time.Millisecond)
		if err := x.end(); err != nil {
			fmt.Fprintf(os.Stderr, "batch %d: %v\n", number, err)
		}
	})
	return b, nil
}

// compareNumbered is compare_batch for a numbered batch.
func compareNumbered(number int64, b *cdevice.RecordBatch) (string, string, string, error) {
	want, err := numbered(number).batch()
	if err != nil {
		return "", "", "", err
	}
	defer want.Release()
	x := &exchange{job: numbered(number), want: want}
	changed, different, err := x.compare(madeBatch{b})
	return b.DeviceID().String(), changed, different, err
}
