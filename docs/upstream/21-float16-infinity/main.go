// ApproxEqual of float16 arrays finds an infinity unequal to itself.
package main

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/float16"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func main() {
	inf := float32(math.Inf(1))
	half := array.NewFloat16Builder(memory.DefaultAllocator)
	half.Append(float16.New(inf))
	single := array.NewFloat32Builder(memory.DefaultAllocator)
	single.Append(inf)
	ofItself := func(a arrow.Array) bool { return array.ApproxEqual(a, a) }
	halves, singles := ofItself(half.NewArray()), ofItself(single.NewArray())
	fmt.Printf("an infinity is approximately equal to itself: float16 %v, float32 %v\n", halves, singles)
	if halves {
		fmt.Println("not reproduced: equal")
		return
	}
	fmt.Println("reproduced: of float16 it is not")
}
