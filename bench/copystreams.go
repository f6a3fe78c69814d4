//go:build cgo

package main

import (
	"context"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Streams whose source takes its time for each batch: meanwhile the last one is copied.

const (
	streamBatches = 20
	streamTurns   = 7
)

// stream measures, in turns, the source alone, its copies, and the copies of a source that takes no
// time. The source alone is the least that a stream can take: it sleeps longer than it asks for.
func (c copier) stream(name string, each time.Duration, rows int) Copy {
	rec := wide(10, rows, mallocator.NewMallocator())
	defer rec.Release()
	source := func(each time.Duration) *cdevice.RecordReader {
		left := streamBatches
		return must(cdevice.NewRecordReaderFunc(context.Background(), rec.Schema(), device.CPU, func(context.Context) (*cdevice.RecordBatch, error) {
			if left == 0 {
				return nil, io.EOF
			}
			left--
			time.Sleep(each)
			return cdevice.WrapRecordBatch(rec, device.CPUDevice())
		}, nil))
	}
	sides := []func() *cdevice.RecordReader{
		func() *cdevice.RecordReader { return source(each) },
		func() *cdevice.RecordReader { return c.copies(source(each)) },
		func() *cdevice.RecordReader { return c.copies(source(0)) },
	}
	times := make([][]float64, len(sides))
	for turn := range streamTurns + 1 {
		for i, side := range sides {
			if took := c.readAll(side()); turn > 0 { // the first fills caches
				times[i] = append(times[i], took)
			}
		}
	}
	return Copy{
		Name: name, NS: median(times[1]), Source: median(times[0]), Copies: median(times[2]),
		Ratio: median(divided(times[1], times[0])),
	}
}

func (c copier) copies(of *cdevice.RecordReader) *cdevice.RecordReader {
	defer of.Release()
	return must(of.CopyTo(c.ctx, c.gpu))
}

// readAll returns the time until the last batch is there.
func (c copier) readAll(r *cdevice.RecordReader) (nanoseconds float64) {
	defer r.Release()
	start := time.Now()
	for b, err := range r.All() {
		check(err)
		check(b.Synchronize(c.ctx))
	}
	return float64(time.Since(start).Nanoseconds())
}
