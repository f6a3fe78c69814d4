//go:build cgo

// ImportCRecordReader ignores its schema argument.
package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
)

func schema(name string, dt arrow.DataType) *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: name, Type: dt}}, nil)
}

func main() {
	b := array.NewInt64Builder(mallocator.NewMallocator())
	b.Append(1)
	sc := schema("from_the_stream", arrow.PrimitiveTypes.Int64)
	rec := array.NewRecordBatch(sc, []arrow.Array{b.NewArray()}, 1)
	used := false
	for _, arg := range []*arrow.Schema{
		schema("from_the_caller", arrow.PrimitiveTypes.Int64),
		schema("of_another_type", arrow.BinaryTypes.String),
	} {
		r, err := array.NewRecordReader(sc, []arrow.RecordBatch{rec})
		if err != nil {
			panic(err)
		}
		var st cdata.CArrowArrayStream
		cdata.ExportRecordReader(r, &st)
		imported, err := cdata.ImportCRecordReader(&st, arg)
		if err != nil {
			fmt.Println("refused:", err)
			used = true
			continue
		}
		got, err := imported.Read()
		if err != nil {
			panic(err)
		}
		fmt.Printf("argument: %v; batch: %v\n", arg.Field(0), got.Schema().Field(0))
		used = used || got.Schema().Equal(arg)
	}
	if !used {
		fmt.Println("reproduced: neither used nor compared with the stream's schema")
		return
	}
	fmt.Println("not reproduced: the argument has an effect")
}
