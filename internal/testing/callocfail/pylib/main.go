//go:build cgo && linux

// Command pylib is a library of functions in Go for Python, in which allocations fail: testdata/failing.py loads it.
package main

import (
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/callocfail"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func main() {}

func init() {
	pyextension.Func("live", callocfail.Live)
	pyextension.Func("alive", func() string { return cdevice.ReadStats().String() })
	pyextension.Func("batch", batch)
	pyextension.Func("array", func() arrow.Array { return batch().Column(0) })
	pyextension.Func("stream", func() (*cdevice.RecordReader, error) {
		b := batch()
		defer b.Release()
		rdr, err := array.NewRecordReader(b.Schema(), []arrow.RecordBatch{b, b})
		if err != nil {
			return nil, err
		}
		defer rdr.Release()
		return cdevice.WrapRecordReader(rdr, device.CPUDevice())
	})
	pyextension.Func("schema", func() *arrow.Schema { return batch().Schema() })
	pyextension.Func("of_batch", func(b arrow.RecordBatch) int64 { return sum(b.Column(0)) }, pyextension.WithParams("batch"))
	pyextension.Func("of_array", sum, pyextension.WithParams("array"))
	pyextension.Func("of_stream", ofStream, pyextension.WithParams("stream"))
	pyextension.Func("of_schema", func(s *arrow.Schema) int { return s.NumFields() }, pyextension.WithParams("schema"))
	pyextension.Func("of_any", func(all []any) int { return len(all) }, pyextension.WithParams("values"))
	pyextension.Func("of_texts", func(all []string, more map[string]*float64) int {
		return len(strings.Join(all, "")) + len(more)
	}, pyextension.WithParams("texts", "more"))
	pyextension.Func("echo", func(text string) string { return text }, pyextension.WithParams("text"))
}

// batch is a batch with the column 1, 2, 3.
func batch() arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2, 3}, nil)
	return b.NewRecordBatch()
}

func sum(a arrow.Array) (total int64) {
	for _, n := range a.(*array.Int64).Int64Values() {
		total += n
	}
	return total
}

func ofStream(r array.RecordReader) (total int64, err error) {
	for r.Next() {
		total += sum(r.RecordBatch().Column(0))
	}
	return total, r.Err()
}
