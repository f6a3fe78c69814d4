//go:build cdata_integration

// Command library is this module as a C shared library with the entry points that Archery, the
// tool of the Arrow project that tests implementations against each other, calls for Go:
// ArrowGo_ExportSchemaFromJson and six more. Exports and imports are those of cdevice.
//
// It reads the JSON files with arrow-go's reader. That is an internal package, so this one is
// compiled inside a copy of arrow-go: see ../build.sh.
package main

// #include <stdint.h>
// #include <stdlib.h>
import "C"

import (
	"context"
	"fmt"
	"runtime/debug"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

func main() {}

// guard runs the body of an entry point. It returns nil, or the text of the error or panic, which
// the caller frees with ArrowGo_FreeError.
func guard(body func(context.Context) error) (text *C.char) {
	defer func() {
		if v := recover(); v != nil {
			text = C.CString(fmt.Sprintf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	if err := body(context.Background()); err != nil {
		return C.CString(err.Error())
	}
	return nil
}

//export ArrowGo_ExportSchemaFromJson
func ArrowGo_ExportSchemaFromJson(path *C.char, out C.uintptr_t) *C.char {
	return guard(func(context.Context) error {
		return exportSchema(C.GoString(path), cdevice.SchemaFromPtr(uintptr(out)))
	})
}

//export ArrowGo_ImportSchemaAndCompareToJson
func ArrowGo_ImportSchemaAndCompareToJson(path *C.char, schema C.uintptr_t) *C.char {
	return guard(func(context.Context) error {
		return compareSchema(C.GoString(path), cdevice.SchemaFromPtr(uintptr(schema)))
	})
}

//export ArrowGo_ExportBatchFromJson
func ArrowGo_ExportBatchFromJson(path *C.char, index C.int, out C.uintptr_t) *C.char {
	return guard(func(ctx context.Context) error {
		return exportBatch(ctx, C.GoString(path), int(index), cdevice.ArrayFromPtr(uintptr(out)))
	})
}

//export ArrowGo_ImportBatchAndCompareToJson
func ArrowGo_ImportBatchAndCompareToJson(path *C.char, index C.int, array C.uintptr_t) *C.char {
	return guard(func(ctx context.Context) error {
		return compareBatch(ctx, C.GoString(path), int(index), cdevice.ArrayFromPtr(uintptr(array)))
	})
}

//export ArrowGo_BytesAllocated
func ArrowGo_BytesAllocated() C.int64_t { return C.int64_t(allocated()) }

//export ArrowGo_RunGC
func ArrowGo_RunGC() { collect() }

//export ArrowGo_FreeError
func ArrowGo_FreeError(text *C.char) { C.free(unsafe.Pointer(text)) }

// ArrowGo_SetRoute is no entry point of Archery. It sets the way that batches take between the JSON
// file and the plain C structs from now on: as slices of longer batches if sliced is not 0, and
// through the memory of the first GPU if gpu is not 0.
//
//export ArrowGo_SetRoute
func ArrowGo_SetRoute(sliced, gpu C.int) *C.char {
	return guard(func(context.Context) error { return setRoute(sliced != 0, gpu != 0) })
}
