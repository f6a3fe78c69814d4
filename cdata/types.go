//go:build cgo

package cdata

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"
)

// The types are those of arrow-go's package, so that both packages can be used in one program: a struct, a
// message or an error of one is a struct, a message or an error of the other.
type (
	// CArrowSchema is struct ArrowSchema of the C data interface.
	CArrowSchema = cdata.CArrowSchema
	// CArrowArray is struct ArrowArray of the C data interface.
	CArrowArray = cdata.CArrowArray
	// CArrowArrayStream is struct ArrowArrayStream of the C stream interface.
	CArrowArrayStream = cdata.CArrowArrayStream

	// CArrowDeviceArray is struct ArrowDeviceArray of the C device data interface. The functions of package
	// cdevice take one of their own: convert the pointer by unsafe.Pointer.
	CArrowDeviceArray = cdata.CArrowDeviceArray
	// CArrowAsyncDeviceStreamHandler is the struct of the same name of the asynchronous device stream interface.
	CArrowAsyncDeviceStreamHandler = cdata.CArrowAsyncDeviceStreamHandler
	// CArrowAsyncProducer is struct ArrowAsyncProducer of the asynchronous device stream interface.
	CArrowAsyncProducer = cdata.CArrowAsyncProducer
	// CArrowAsyncTask is struct ArrowAsyncTask of the asynchronous device stream interface.
	CArrowAsyncTask = cdata.CArrowAsyncTask

	// RecordMessage is a record batch of an asynchronous stream, or the error that ended the stream.
	RecordMessage = cdata.RecordMessage
	// AsyncRecordBatchStream is an asynchronous stream as its consumer gets it, or the error of a stream that
	// ended before its schema was known.
	AsyncRecordBatchStream = cdata.AsyncRecordBatchStream
	// AsyncStreamError is an error that the producer of an asynchronous stream reported. Code is an errno.
	// Metadata is printed, as in ["key": "value"].
	AsyncStreamError = cdata.AsyncStreamError
)

// SchemaFromPtr returns the struct ArrowSchema at an address. It borrows the struct.
func SchemaFromPtr(ptr uintptr) *CArrowSchema { return at[CArrowSchema](ptr) }

// ArrayFromPtr returns the struct ArrowArray at an address. It borrows the struct.
func ArrayFromPtr(ptr uintptr) *CArrowArray { return at[CArrowArray](ptr) }

// at returns the struct at an address of C memory. The conversion by way of the pointer's own bytes is one
// that go vet does not take for a mistake.
func at[S any](ptr uintptr) *S { return *(**S)(unsafe.Pointer(&ptr)) }
