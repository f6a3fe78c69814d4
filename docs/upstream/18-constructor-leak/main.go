// An array constructor of arrow-go that panics keeps the references that it took
// until then: the memory of its data is never freed.
package main

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// makeArray reports the panic of arrow-go's constructor.
func makeArray(data arrow.ArrayData) (arr arrow.Array, panicked any) {
	defer func() { panicked = recover() }()
	return array.MakeFromData(data), nil
}

func main() {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	// A map with a null key, which no map may have.
	entry := arrow.StructOf(arrow.Field{Name: "key", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		arrow.Field{Name: "value", Type: arrow.PrimitiveTypes.Int32, Nullable: true})
	list, _, err := array.FromJSON(mem, arrow.ListOf(entry), strings.NewReader(`[[{"key":null,"value":1}]]`))
	if err != nil {
		panic(err)
	}
	dt := arrow.MapOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int32)
	asMap := array.NewData(dt, 1, list.Data().Buffers(), list.Data().Children(), 0, 0)
	outer := array.NewData(arrow.StructOf(arrow.Field{Name: "m", Type: dt}), 1, []*memory.Buffer{nil}, []arrow.ArrayData{asMap}, 0, 0)

	arr, panicked := makeArray(outer)
	if arr != nil {
		arr.Release()
	}
	outer.Release()
	asMap.Release()
	list.Release()
	if panicked != nil && mem.CurrentAlloc() > 0 {
		fmt.Printf("reproduced: the constructor panicked (%v), and %d bytes stay allocated\n", panicked, mem.CurrentAlloc())
		return
	}
	fmt.Printf("not reproduced: panic %v, %d bytes stay allocated\n", panicked, mem.CurrentAlloc())
}
