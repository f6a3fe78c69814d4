//go:build cdata_integration

package main

import (
	"fmt"
	"os"

	"github.com/apache/arrow-go/v18/arrow/internal/arrjson"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// allocator counts the bytes that batches of JSON files take.
var allocator = memory.NewCheckedAllocator(memory.NewGoAllocator())

// openFile reads a JSON file, all batches of it. The result is owned by the caller.
func openFile(path string) (*arrjson.Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := arrjson.NewReader(f, arrjson.WithAllocator(allocator))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
