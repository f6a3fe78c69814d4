// Command golib is the Go half of the kit's section libcudf, as a shared library: it makes arrays of every type on a GPU,
// exports what ForCuDF returns, takes back what a consumer makes of it, and compares that to the original. The C++
// program next to it calls the functions in this file, a Python program those in python.go.
//
// A function of C returns NULL, or the text of an error, which the caller frees with kit_free.
package main

// #include <stdint.h>
// #include <stdlib.h>
import "C"

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

func main() {}

// guard runs the body of an exported function: an error or a panic of the body is the returned text.
func guard(body func() error) (text *C.char) {
	defer func() {
		if v := recover(); v != nil {
			text = C.CString(fmt.Sprintf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	if err := body(); err != nil {
		return C.CString(err.Error())
	}
	return nil
}

//export kit_free
func kit_free(text *C.char) { C.free(unsafe.Pointer(text)) }

// kit_jobs returns the names of all jobs, one per line.
//
//export kit_jobs
func kit_jobs(out **C.char) *C.char {
	return guard(func() error {
		*out = C.CString(strings.Join(jobNames(), "\n"))
		return nil
	})
}

// kit_make makes the array of a job on the GPU, and fills both structs. The bytes of the array are wrong until
// kit_open_after was called and its time is over: until then the event of the struct is pending. If ForCuDF refuses the
// array, its reason is in refused, the structs stay as they are, and there is no exchange.
//
//export kit_make
func kit_make(name *C.char, array, schema C.uintptr_t, exchange *C.uint64_t, refused **C.char) *C.char {
	return guard(func() error {
		job, err := findJob(C.GoString(name))
		if err != nil {
			return err
		}
		x, reason, err := begin(job)
		if err != nil {
			return err
		}
		if reason != "" {
			*refused = C.CString(reason)
			return nil
		}
		if err := x.export(cdevice.DeviceArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema))); err != nil {
			x.end()
			return err
		}
		*exchange = C.uint64_t(exchanges.put(x))
		return nil
	})
}

// kit_make_raw fills both structs with the array of a job as it is, without ForCuDF and without an exchange.
//
//export kit_make_raw
func kit_make_raw(name *C.char, array, schema C.uintptr_t) *C.char {
	return guard(func() error {
		job, err := findJob(C.GoString(name))
		if err != nil {
			return err
		}
		return exportRaw(job, cdevice.DeviceArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema)))
	})
}

// kit_open_after lets the work that fills the array go on after some microseconds.
//
//export kit_open_after
func kit_open_after(exchange C.uint64_t, microseconds C.int64_t) *C.char {
	return guard(func() error {
		x, err := exchanges.get(uint64(exchange))
		if err == nil {
			x.pending.openAfter(time.Duration(microseconds) * time.Microsecond)
		}
		return err
	})
}

// kit_is_held reports whether the work that fills the array is still held back.
//
//export kit_is_held
func kit_is_held(exchange C.uint64_t, held *C.int) *C.char {
	return guard(func() error {
		x, err := exchanges.get(uint64(exchange))
		if err == nil && x.pending.held() {
			*held = 1
		}
		return err
	})
}

// kit_compare takes both structs, and compares them to the array of the exchange. The difference is written to
// different; changed gets the type in the structs if it is another one than that of the array.
//
//export kit_compare
func kit_compare(exchange C.uint64_t, array, schema C.uintptr_t, changed, different **C.char) *C.char {
	return guard(func() error {
		x, err := exchanges.get(uint64(exchange))
		if err != nil {
			return err
		}
		result, err := x.takeBack(cdevice.DeviceArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema)))
		if err != nil {
			return err
		}
		*changed, *different = text(result.changed), text(result.different)
		return nil
	})
}

// kit_schema fills a struct with the schema of the array that ForCuDF returned.
//
//export kit_schema
func kit_schema(exchange C.uint64_t, schema C.uintptr_t) *C.char {
	return guard(func() error {
		x, err := exchanges.get(uint64(exchange))
		if err != nil {
			return err
		}
		return x.exportSchema(cdevice.SchemaFromPtr(uintptr(schema)))
	})
}

func text(s string) *C.char {
	if s == "" {
		return nil
	}
	return C.CString(s)
}

// kit_end waits for the work that fills the array, and ends the exchange.
//
//export kit_end
func kit_end(exchange C.uint64_t) *C.char {
	return guard(func() error {
		x, err := exchanges.take(uint64(exchange))
		if err == nil {
			err = x.end()
		}
		return err
	})
}

// kit_live returns the counts of live objects and memory, as JSON, after pending frees are done. The blocks of C memory,
// of which a schema is one, are counted apart.
//
//export kit_live
func kit_live(out **C.char, blocks *C.int64_t) *C.char {
	return guard(func() error {
		live, err := readLive()
		if err != nil {
			return err
		}
		*blocks = C.int64_t(live["exported_blocks"])
		delete(live, "exported_blocks")
		text, err := json.Marshal(live)
		if err == nil {
			*out = C.CString(string(text))
		}
		return err
	})
}
