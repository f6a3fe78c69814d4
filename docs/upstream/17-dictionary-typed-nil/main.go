// Data.Dictionary returns a non-nil interface around a nil pointer.
package main

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func main() {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	b.Append(1)
	dict := b.NewArray().Data().Dictionary()
	fmt.Printf("dictionary of an int64 array: %T, == nil: %v\n", dict, dict == nil)
	if dict == nil {
		fmt.Println("not reproduced: nil")
		return
	}
	defer func() {
		fmt.Println("dict.Len():", recover())
		fmt.Println("reproduced: the nil check passes and the call behind it panics")
	}()
	dict.Len()
}
