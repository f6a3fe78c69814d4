package cdevice_test

import (
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
)

// A rule that holds for the structs of both C interfaces is a test that eachKind runs with each.

// kind is one of the C interfaces: the C device data interface, or the C data interface, whose structs have no
// device and no event. Tests call the first device structs, the second plain structs.
type kind struct {
	name      string
	newArray  func() cArray  // filled with garbage, as a consumer's may be
	newStream func() cStream // likewise
	noArray   cArray         // NULL
	noStream  cStream
	in        func(text string) string // text, which names device structs, about the structs of this kind
}

var (
	deviceKind = kind{
		"device", func() cArray { return arrayOf[cdevice.CArrowDeviceArray]{garbageArray()} },
		func() cStream { return streamOf[cdevice.CArrowDeviceArrayStream]{garbageStream()} },
		arrayOf[cdevice.CArrowDeviceArray]{}, streamOf[cdevice.CArrowDeviceArrayStream]{}, func(text string) string { return text },
	}
	plainKind = kind{
		"plain", func() cArray { return arrayOf[cdata.CArrowArray]{garbagePlain()} },
		func() cStream { return streamOf[cdata.CArrowArrayStream]{garbagePlainStream()} },
		arrayOf[cdata.CArrowArray]{}, streamOf[cdata.CArrowArrayStream]{}, inPlain,
	}
)

// eachKind runs a test with the structs of each C interface.
func eachKind(t *testing.T, test func(*testing.T, kind)) {
	t.Helper()
	for _, k := range []kind{deviceKind, plainKind} {
		t.Run(k.name, func(t *testing.T) {
			checkLeaks(t)
			test(t, k)
		})
	}
}

// inPlain is an error text about device structs as it is for plain ones.
func inPlain(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "ArrowDeviceArray.array", "ArrowArray"), "ArrowDeviceArray", "ArrowArray")
}

// cArray is a struct of an array, of either kind.
type cArray interface {
	members() *abi.ArrowArray
	untouched() bool // reports whether it is as newArray made it
	zero() bool      // reports whether it is a released struct in all of its fields
	exportBatch(*cdevice.RecordBatch, *cdata.CArrowSchema) error
	exportArray(*cdevice.Array, *cdata.CArrowSchema) error
	importBatch(*cdata.CArrowSchema, ...cdevice.ImportOption) (*cdevice.RecordBatch, error)
	importBatchWithSchema(*arrow.Schema, ...cdevice.ImportOption) (*cdevice.RecordBatch, error)
	importArray(*cdata.CArrowSchema, ...cdevice.ImportOption) (*cdevice.Array, error)
	importArrayWithType(arrow.DataType, ...cdevice.ImportOption) (*cdevice.Array, error)
	release()
}

type arrayOf[A cdevice.ArrayStruct] struct{ at *A }

// members are the first of both structs.
func (a arrayOf[A]) members() *abi.ArrowArray { return abi.As[abi.ArrowArray](a.at) }

func (a arrayOf[A]) untouched() bool {
	if out, ok := any(a.at).(*cdevice.CArrowDeviceArray); ok {
		return *out == *garbageArray()
	}
	return *a.members() == *plainArray(garbagePlain())
}

func (a arrayOf[A]) zero() bool { return reflect.ValueOf(*a.at).IsZero() }

func (a arrayOf[A]) exportBatch(b *cdevice.RecordBatch, s *cdata.CArrowSchema) error {
	return cdevice.ExportRecordBatch(b, a.at, s)
}

func (a arrayOf[A]) exportArray(arr *cdevice.Array, s *cdata.CArrowSchema) error {
	return cdevice.ExportArray(arr, a.at, s)
}

func (a arrayOf[A]) importBatch(s *cdata.CArrowSchema, opts ...cdevice.ImportOption) (*cdevice.RecordBatch, error) {
	return cdevice.ImportRecordBatch(a.at, s, opts...)
}

func (a arrayOf[A]) importBatchWithSchema(s *arrow.Schema, opts ...cdevice.ImportOption) (*cdevice.RecordBatch, error) {
	return cdevice.ImportRecordBatchWithSchema(a.at, s, opts...)
}

func (a arrayOf[A]) importArray(s *cdata.CArrowSchema, opts ...cdevice.ImportOption) (*cdevice.Array, error) {
	return cdevice.ImportArray(a.at, s, opts...)
}

func (a arrayOf[A]) importArrayWithType(dt arrow.DataType, opts ...cdevice.ImportOption) (*cdevice.Array, error) {
	return cdevice.ImportArrayWithType(a.at, dt, opts...)
}

func (a arrayOf[A]) release() { cdevice.ReleaseStruct(a.at) }

// cStream is a struct of a stream, of either kind. Its callbacks are called as a consumer in C calls them.
type cStream interface {
	callbacks() *abi.ArrowArrayStream // the members that both structs have
	address() uintptr
	untouched() bool  // reports whether it is as newStream made it
	moved() cStream   // a bitwise copy; this one is marked released
	newArray() cArray // filled with garbage
	exportRecords(*cdevice.RecordReader) error
	exportArrays(*cdevice.ArrayReader) error
	importRecords(...cdevice.ImportOption) (*cdevice.RecordReader, error)
	importArrays(...cdevice.ImportOption) (*cdevice.ArrayReader, error)
	getSchema(*abi.ArrowSchema) int
	getNext(cArray) int // nil is NULL
	lastError() string
	release()
}

type streamOf[S cdevice.StreamStruct] struct{ at *S }

// device is the struct, or nil if it is a plain one.
func (s streamOf[S]) device() *cdevice.CArrowDeviceArrayStream {
	d, _ := any(s.at).(*cdevice.CArrowDeviceArrayStream)
	return d
}

func (s streamOf[S]) callbacks() *abi.ArrowArrayStream {
	if d := s.device(); d != nil {
		return abi.As[abi.ArrowArrayStream](&d.GetSchema)
	}
	return abi.As[abi.ArrowArrayStream](s.at)
}

func (s streamOf[S]) address() uintptr { return addressOf(s.at) }

func (s streamOf[S]) untouched() bool {
	if d := s.device(); d != nil {
		return *d == *garbageStream()
	}
	return *s.callbacks() == *plainStream(garbagePlainStream())
}

func (s streamOf[S]) moved() cStream {
	to := new(S)
	*to = *s.at
	s.callbacks().Release = 0
	return streamOf[S]{to}
}

func (s streamOf[S]) newArray() cArray {
	if s.device() != nil {
		return deviceKind.newArray()
	}
	return plainKind.newArray()
}

func (s streamOf[S]) exportRecords(r *cdevice.RecordReader) error {
	return cdevice.ExportRecordReader(r, s.at)
}

func (s streamOf[S]) exportArrays(r *cdevice.ArrayReader) error {
	return cdevice.ExportArrayReader(r, s.at)
}

func (s streamOf[S]) importRecords(opts ...cdevice.ImportOption) (*cdevice.RecordReader, error) {
	return cdevice.ImportRecordReader(s.at, opts...)
}

func (s streamOf[S]) importArrays(opts ...cdevice.ImportOption) (*cdevice.ArrayReader, error) {
	return cdevice.ImportArrayReader(s.at, opts...)
}

func (s streamOf[S]) getSchema(out *abi.ArrowSchema) int {
	if d := s.device(); d != nil {
		return bridge.CallGetSchema(abi.As[abi.ArrowDeviceArrayStream](d), out)
	}
	return bridge.CallPlainGetSchema(s.callbacks(), out)
}

func (s streamOf[S]) getNext(out cArray) int {
	var members *abi.ArrowArray
	if out != nil {
		members = out.members()
	}
	if d := s.device(); d != nil {
		return bridge.CallGetNext(abi.As[abi.ArrowDeviceArrayStream](d), abi.As[abi.ArrowDeviceArray](members))
	}
	return bridge.CallPlainGetNext(s.callbacks(), members)
}

func (s streamOf[S]) lastError() string {
	if d := s.device(); d != nil {
		return bridge.CallGetLastError(abi.As[abi.ArrowDeviceArrayStream](d))
	}
	return bridge.CallPlainGetLastError(s.callbacks())
}

func (s streamOf[S]) release() { cdevice.ReleaseStruct(s.at) }

// lastErrorAt is the address that get_last_error returns.
func lastErrorAt(s cStream) uintptr {
	return cpeer.CallForPointer(s.callbacks().GetLastError, s.address())
}

// export exports a reader, which it releases. The stream is released at the end of the test.
func (k kind) export(t testing.TB, r *cdevice.RecordReader) cStream {
	t.Helper()
	out := k.newStream()
	require.NoError(t, out.exportRecords(r))
	r.Release()
	t.Cleanup(out.release)
	return out
}

// export exports a reader to a device struct; see kind.export.
func export(t testing.TB, r *cdevice.RecordReader) *cdevice.CArrowDeviceArrayStream {
	t.Helper()
	return deviceKind.export(t, r).(streamOf[cdevice.CArrowDeviceArrayStream]).at
}

// exportPlain exports a reader to a plain struct; see kind.export.
func exportPlain(t testing.TB, r *cdevice.RecordReader) *cdata.CArrowArrayStream {
	t.Helper()
	return plainKind.export(t, r).(streamOf[cdata.CArrowArrayStream]).at
}

// nextOfStream calls get_next, and imports its array: nil at the end.
func nextOfStream(t testing.TB, s cStream) (b *cdevice.RecordBatch, code int) {
	t.Helper()
	out := s.newArray()
	if code = s.getNext(out); code != 0 || out.members().Release == 0 {
		return nil, code
	}
	b, err := out.importBatchWithSchema(numberedSchema)
	require.NoError(t, err)
	return b, 0
}

// next is nextOfStream of a device struct.
func next(t testing.TB, s *cdevice.CArrowDeviceArrayStream) (b *cdevice.RecordBatch, code int) {
	t.Helper()
	return nextOfStream(t, streamOf[cdevice.CArrowDeviceArrayStream]{s})
}

// lastError is lastErrorAt of a device struct.
func lastError(s *cdevice.CArrowDeviceArrayStream) uintptr {
	return lastErrorAt(streamOf[cdevice.CArrowDeviceArrayStream]{s})
}

// addressOf is the address of a Go variable.
func addressOf[T any](p *T) uintptr { return heap.Address(p) }

func plainArray(a *cdata.CArrowArray) *abi.ArrowArray { return (*abi.ArrowArray)(unsafe.Pointer(a)) }

// plainStream and plainArray see a struct of cdata's as the tests of this package do.
func plainStream(s *cdata.CArrowArrayStream) *abi.ArrowArrayStream {
	return (*abi.ArrowArrayStream)(unsafe.Pointer(s))
}

// children are the addresses of the structs below a.
func children(a *abi.ArrowArray) []uintptr { return abi.Slice[uintptr](a.Children, int(a.NChildren)) }

// foreignSchema makes an ArrowSchema in C memory whose releases are counted:
// the root's in counts[0], all below in counts[1].
func foreignSchema(a *arena, format string, children ...*abi.ArrowSchema) (s *abi.ArrowSchema, counts []int64) {
	s, counts = &allocC[abi.ArrowSchema](a, 1)[0], allocC[int64](a, 2)
	s.Format, s.Release, s.PrivateData = a.cString(format), cpeer.CountSchemaRelease, sliceAddress(counts)
	entries := allocC[uintptr](a, len(children)+room)
	for i, child := range children {
		child.PrivateData = sliceAddress(counts[1:])
		entries[i] = addressOf(child)
	}
	if s.NChildren = int64(len(children)); len(children) > 0 {
		s.Children = sliceAddress(entries)
	}
	return s, counts
}

// The caller's structs may hold anything before an export.
func garbageArray() *cdevice.CArrowDeviceArray {
	out := new(cdevice.CArrowDeviceArray)
	out.Array.Buffers, out.Array.Children, out.Array.Dictionary, out.Array.Release = 0xdead, 0xdead, 0xdead, 0xdead
	out.DeviceID, out.DeviceType, out.SyncEvent, out.Reserved = 77, 77, 0xdead, [3]int64{1, 2, 3}
	return out
}

// garbageSchema is a consumer's ArrowSchema before an export.
func garbageSchema() *cdata.CArrowSchema { return new(cdata.CArrowSchema) }

// garbagePlain is a consumer's struct, which may hold anything before an export.
func garbagePlain() *cdata.CArrowArray {
	const g = 0xdeadbeef
	a := &abi.ArrowArray{Length: -7, NullCount: -7, Offset: -7, NBuffers: -7, NChildren: -7, Buffers: g, Children: g, Dictionary: g, Release: g, PrivateData: g}
	return cdevice.ArrayFromPtr(addressOf(a))
}

// garbageStream is a consumer's ArrowDeviceArrayStream before an export.
func garbageStream() *cdevice.CArrowDeviceArrayStream {
	const g = 0xdeadbeef
	return &cdevice.CArrowDeviceArrayStream{DeviceType: -7, GetSchema: g, GetNext: g, GetLastError: g, Release: g, PrivateData: g}
}

// garbagePlainStream is a consumer's ArrowArrayStream before an export.
func garbagePlainStream() *cdata.CArrowArrayStream {
	const g = 0xdeadbeef
	s := &abi.ArrowArrayStream{GetSchema: g, GetNext: g, GetLastError: g, Release: g, PrivateData: g}
	return cdevice.ArrayStreamFromPtr(addressOf(s))
}
