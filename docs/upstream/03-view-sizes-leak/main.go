//go:build cgo

// Every export of a view array leaks the buffer of variadic buffer lengths.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
)

const exports = 1_000_000

// resident returns the resident memory of the process in bytes (Linux only).
func resident() int64 {
	runtime.GC()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		fmt.Println("not reproduced: no /proc/self/statm here, nothing measured")
		os.Exit(0)
	}
	var size, pages int64
	fmt.Sscan(string(b), &size, &pages)
	return pages * int64(os.Getpagesize())
}

// growth exports and releases arr again and again and returns the growth per export in bytes.
func growth(arr arrow.Array) float64 {
	round := func(n int) {
		for range n {
			var ca cdata.CArrowArray
			cdata.ExportArrowArray(arr, &ca, nil)
			cdata.ReleaseCArrowArray(&ca)
		}
	}
	round(exports / 10) // warm up
	before := resident()
	round(exports)
	return float64(resident()-before) / exports
}

func main() {
	mem := mallocator.NewMallocator()
	const text = "longer than the twelve bytes that fit into a view"
	sb, vb, bb := array.NewStringBuilder(mem), array.NewStringViewBuilder(mem), array.NewBinaryViewBuilder(mem)
	sb.Append(text)
	vb.AppendString(text)
	bb.AppendString(text)
	plain, view, binary := growth(sb.NewArray()), growth(vb.NewArray()), growth(bb.NewArray())
	fmt.Printf("growth per export+release, mean of %d: string %.1f B, string_view %.1f B, binary_view %.1f B\n",
		exports, plain, view, binary)
	if view > plain+8 || binary > plain+8 {
		fmt.Println("reproduced: exports of view arrays leak")
		return
	}
	fmt.Println("not reproduced: no growth")
}
