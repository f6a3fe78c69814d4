// A delta that cannot be joined to its dictionary takes the memory of a batch that was read before, and retained.
package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// stream is a dictionary, a batch, a delta and a batch.
func stream() []byte {
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	schema := arrow.NewSchema([]arrow.Field{{Name: "d", Type: dt}}, nil)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema), ipc.WithDictionaryDeltas(true))
	for _, words := range []string{`["a", "b"]`, `["a", "b", "` + strings.Repeat("c", 0x1234) + `"]`} {
		values, _, err := array.FromJSON(memory.DefaultAllocator, dt.ValueType, strings.NewReader(words))
		check(err)
		indices, _, err := array.FromJSON(memory.DefaultAllocator, dt.IndexType, strings.NewReader("[0, 1]"))
		check(err)
		check(w.Write(array.NewRecordBatch(schema, []arrow.Array{array.NewDictionaryArray(dt, indices, values)}, 2)))
	}
	check(w.Close())
	return out.Bytes()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	b := stream()
	at := bytes.LastIndex(b, []byte{0, 0, 0, 0, 0x34, 0x12, 0, 0}) // the offsets of the delta
	copy(b[at+4:], []byte{0xff, 0xff, 0xff, 0xff})
	r, err := ipc.NewReader(bytes.NewReader(b))
	check(err)
	r.Next()
	first := r.RecordBatch()
	first.Retain()
	for r.Next() {
	}
	fmt.Println("the end of the stream:", r.Err())
	r.Release()
	defer func() {
		if p := recover(); p != nil {
			fmt.Println("reproduced: the batch, which was retained, panics:", p)
		}
	}()
	fmt.Println("not reproduced:", first.Column(0).String())
}
