package cdevice_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// The C data interface does not say how large a buffer is. A corrupt offset is harmless here as
// long as it stays within the slack behind the data.
const (
	slack = 4096 // zero bytes behind every foreign buffer
	room  = 8    // NULL entries behind every foreign array of pointers
)

// arena is C memory, as a foreign producer's is.
type arena struct {
	mem    *mallocator.Mallocator
	blocks [][]byte
}

// newArena is C memory that is given back together.
func newArena() *arena { return &arena{mem: mallocator.NewMallocator()} }

func (a *arena) free() {
	for _, b := range a.blocks {
		a.mem.Free(b)
	}
	a.blocks = nil
}

// allocC returns n zeroed values of type T, which holds no Go pointers, in C memory.
func allocC[T any](a *arena, n int) []T {
	var zero T
	b := a.mem.Allocate(n * int(unsafe.Sizeof(zero)))
	a.blocks = append(a.blocks, b)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// sliceAddress is the address of the first element.
func sliceAddress[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }

// cString returns the address of s, NUL-terminated.
func (a *arena) cString(s string) uintptr {
	b := allocC[byte](a, len(s)+1)
	copy(b, s)
	return sliceAddress(b)
}

// foreignNode is one ArrowArray as another library would hand it over, in C
// memory with everything that it points to. A test corrupts any of it.
type foreignNode struct {
	*abi.ArrowArray
	typ      arrow.DataType // of the storage
	path     string         // below the root, as errors print it
	buffers  [][]byte       // the memory of the pointers, slack included; nil for NULL
	pointers []uintptr      // the memory of Buffers, with room behind
	children []*foreignNode
	entries  []uintptr // the memory of Children, with room behind
	dict     *foreignNode
	leads    bool // values lead a reader: run ends

	good         abi.ArrowArray
	goodBuffers  [][]byte
	goodPointers []uintptr
	goodEntries  []uintptr
}

// foreignArray is an ArrowDeviceArray with well-formed contents and release
// callbacks that count.
type foreignArray struct {
	*arena
	device *cdevice.CArrowDeviceArray
	root   *foreignNode
	base   *foreignNode // the root, or the last column of a record batch
	field  arrow.Field
	schema *arrow.Schema // of a record batch; nil for an array
	kind   kind          // a plain one comes in as its ArrowArray, without the device
	counts []int64       // calls of release: of the root, of anything below

	goodDevice cdevice.CArrowDeviceArray
}

// newForeign copies an array into C memory, alone or as both columns of a batch.
func newForeign(t testing.TB, arr arrow.Array, w way) *foreignArray {
	t.Helper()
	f := &foreignArray{arena: newArena(), kind: deviceKind, field: arrow.Field{Name: "f", Type: arr.DataType(), Nullable: true}}
	f.device = &allocC[cdevice.CArrowDeviceArray](f.arena, 1)[0]
	f.counts = allocC[int64](f.arena, 2)

	var out cdevice.CArrowDeviceArray
	root := arr.DataType()
	if w == asBatch {
		fields := []arrow.Field{{Name: "e", Type: root, Nullable: true}, f.field}
		f.schema = arrow.NewSchema(fields, nil)
		root = arrow.StructOf(fields...)
		rec := array.NewRecordBatch(f.schema, []arrow.Array{arr, arr}, int64(arr.Len()))
		defer rec.Release()
		b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		defer b.Release()
		require.NoError(t, cdevice.ExportRecordBatch(b, &out, nil))
	} else {
		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		defer a.Release()
		require.NoError(t, cdevice.ExportArray(a, &out, nil))
	}
	defer cdevice.ReleaseStruct(&out)

	*f.device = out
	sizes := map[uintptr]int{}
	measureBuffers(arr.Data(), sizes)
	f.root = f.mirror(abi.As[abi.ArrowArray](&f.device.Array), abi.As[abi.ArrowArray](&out.Array), root, "", sizes)
	f.root.PrivateData = sliceAddress(f.counts)
	f.base = f.root
	if w == asBatch {
		f.base = f.root.children[1]
	}
	f.goodDevice = *f.device
	f.each(func(n *foreignNode) { n.good = *n.ArrowArray })
	return f
}

func measureBuffers(data arrow.ArrayData, sizes map[uintptr]int) {
	for _, buf := range data.Buffers() {
		if buf != nil && buf.Len() > 0 {
			at := sliceAddress(buf.Bytes())
			sizes[at] = max(sizes[at], buf.Len())
		}
	}
	for _, child := range data.Children() {
		measureBuffers(child, sizes)
	}
	if data.DataType().ID() == arrow.DICTIONARY {
		measureBuffers(data.Dictionary(), sizes)
	}
}

func (f *foreignArray) mirror(to, src *abi.ArrowArray, dt arrow.DataType, path string, sizes map[uintptr]int) *foreignNode {
	n := &foreignNode{ArrowArray: to, typ: storageOf(dt), path: path}
	*to = *src
	to.Release, to.PrivateData = cpeer.CountArrayRelease, sliceAddress(f.counts[1:])

	n.pointers = allocC[uintptr](f.arena, int(src.NBuffers)+room)
	for i, p := range abi.Slice[uintptr](src.Buffers, int(src.NBuffers)) {
		var b []byte
		if p != 0 {
			size := sizes[p]
			if isView(n.typ) && i == int(src.NBuffers)-1 {
				size = 8 * (i - 2)
			}
			b = allocC[byte](f.arena, size+slack)
			copy(b, abi.Slice[byte](p, size))
			n.pointers[i] = sliceAddress(b)
		}
		n.buffers = append(n.buffers, b)
		n.goodBuffers = append(n.goodBuffers, append([]byte(nil), b...))
	}
	to.Buffers = sliceAddress(n.pointers)
	n.goodPointers = append([]uintptr(nil), n.pointers...)

	n.entries = allocC[uintptr](f.arena, int(src.NChildren)+room)
	for i, p := range abi.Slice[uintptr](src.Children, int(src.NChildren)) {
		child := allocC[abi.ArrowArray](f.arena, 1)
		n.entries[i] = sliceAddress(child)
		n.children = append(n.children, f.mirror(&child[0], abi.At[abi.ArrowArray](p), fieldsOf(n.typ)[i].Type, fmt.Sprintf("%s.children[%d]", path, i), sizes))
	}
	if n.typ.ID() == arrow.RUN_END_ENCODED {
		n.children[0].leads = true
	}
	if src.NChildren > 0 {
		to.Children = sliceAddress(n.entries)
	}
	n.goodEntries = append([]uintptr(nil), n.entries...)
	if src.Dictionary != 0 {
		values := allocC[abi.ArrowArray](f.arena, 1)
		to.Dictionary = sliceAddress(values)
		n.dict = f.mirror(&values[0], abi.At[abi.ArrowArray](src.Dictionary), n.typ.(*arrow.DictionaryType).ValueType, path+".dictionary", sizes)
	}
	return n
}

func storageOf(dt arrow.DataType) arrow.DataType {
	for {
		ext, ok := dt.(arrow.ExtensionType)
		if !ok {
			return dt
		}
		dt = ext.StorageType()
	}
}

func fieldsOf(dt arrow.DataType) []arrow.Field {
	if nested, ok := dt.(arrow.NestedType); ok {
		return nested.Fields()
	}
	return nil
}

// isView reports whether arrays of a type are views.
func isView(dt arrow.DataType) bool {
	return dt.ID() == arrow.BINARY_VIEW || dt.ID() == arrow.STRING_VIEW
}

// each calls visit for every node, parents first.
func (f *foreignArray) each(visit func(*foreignNode)) {
	var walk func(n *foreignNode)
	walk = func(n *foreignNode) {
		visit(n)
		for _, child := range n.children {
			walk(child)
		}
		if n.dict != nil {
			walk(n.dict)
		}
	}
	walk(f.root)
}

// restore undoes every corruption, and every release.
func (f *foreignArray) restore() {
	*f.device = f.goodDevice
	clear(f.counts)
	f.each(func(n *foreignNode) {
		*n.ArrowArray = n.good
		copy(n.pointers, n.goodPointers)
		copy(n.entries, n.goodEntries)
		for i := range n.buffers {
			copy(n.buffers[i], n.goodBuffers[i])
		}
	})
}

// setNull makes buffer i NULL.
func (n *foreignNode) setNull(i int) { n.pointers[i] = 0 }

// valuesAt returns buffer i of n as values that a test may change.
func valuesAt[T any](n *foreignNode, i int) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(n.buffers[i]))), len(n.buffers[i])/int(unsafe.Sizeof(zero)))
}

// newSchema exports the schema that fits the array as it was before any corruption.
func (f *foreignArray) newSchema(t testing.TB) *cdata.CArrowSchema {
	t.Helper()
	s := new(cdata.CArrowSchema)
	if f.schema != nil {
		require.NoError(t, cdevice.ExportSchema(f.schema, s))
	} else {
		require.NoError(t, cdevice.ExportField(f.field, s))
	}
	return s
}

// imported is a *cdevice.RecordBatch or a *cdevice.Array.
type imported interface {
	Release()
	String() string
	DeviceID() device.ID
	ValidateFull(context.Context) error
}

// importWith imports the array with a C schema.
func (f *foreignArray) importWith(s *cdata.CArrowSchema, opts ...cdevice.ImportOption) (imported, error) {
	return importFrom(f.c(), s, f.schema != nil, opts...)
}

func importFrom(c cArray, s *cdata.CArrowSchema, batch bool, opts ...cdevice.ImportOption) (imported, error) {
	if batch {
		return orNil(c.importBatch(s, opts...))
	}
	return orNil(c.importArray(s, opts...))
}

// importKnown imports the array without a C schema.
func (f *foreignArray) importKnown(opts ...cdevice.ImportOption) (imported, error) {
	if f.schema != nil {
		return orNil(f.c().importBatchWithSchema(f.schema, opts...))
	}
	return orNil(f.c().importArrayWithType(f.field.Type, opts...))
}

// c is the struct that an import takes.
func (f *foreignArray) c() cArray {
	if f.kind.name == plainKind.name {
		return arrayOf[cdata.CArrowArray]{cdevice.ArrayFromPtr(addressOf(&f.device.Array))}
	}
	return arrayOf[cdevice.CArrowDeviceArray]{f.device}
}

// orNil keeps a nil pointer from becoming an interface that is not nil.
func orNil[T interface {
	comparable
	imported
}](v T, err error,
) (imported, error) {
	var none T
	if v == none {
		return nil, err
	}
	return v, err
}

// foreignCase makes a foreign array of a case, named as "utf8" or "utf8/empty";
// the variant is nulls where none is named.
func foreignCase(t testing.TB, name string, w way) *foreignArray {
	t.Helper()
	name, variant, found := strings.Cut(name, "/")
	if !found {
		variant = string(cases.Nulls)
	}
	c, ok := casesByName[name]
	require.True(t, ok, "no case %q", name)
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	arr, err := c.Array(mem, cases.Variant(variant))
	require.NoError(t, err)
	defer arr.Release()
	return newForeign(t, arr, w)
}

var casesByName = func() map[string]cases.Case {
	m := map[string]cases.Case{}
	for _, c := range cases.All() {
		m[c.Name] = c
	}
	return m
}()

// eachForeign runs body for every case as a subtest.
func eachForeign(t *testing.T, variants []cases.Variant, w way, body func(t *testing.T, f *foreignArray)) {
	t.Helper()
	for _, c := range cases.All() {
		for _, v := range variants {
			t.Run(fmt.Sprintf("%s/%s/%s", c.Name, v, w), func(t *testing.T) {
				checkLeaks(t)
				f := foreignCase(t, c.Name+"/"+string(v), w)
				defer f.free()
				body(t, f)
			})
		}
	}
}

// hasBitmap reports whether arrays of a type have a validity bitmap.
func hasBitmap(dt arrow.DataType) bool {
	switch dt.ID() {
	case arrow.NULL, arrow.SPARSE_UNION, arrow.DENSE_UNION, arrow.RUN_END_ENCODED:
		return false
	}
	return true
}

// importAndUse imports the possibly corrupt f, and uses the result as far as the level of
// validation allows. It returns the error of the import.
func importAndUse(t testing.TB, f *foreignArray, what string, full bool) error {
	t.Helper()
	releases := int64(1)
	if f.device.Array.Release == 0 {
		releases = 0
	}
	var got imported
	var err error
	noPanic(t, what, func() {
		if got, err = f.importKnown(); full {
			got, err = validated(got, err)
		}
	})
	if err == nil && got != nil {
		noPanic(t, what, func() {
			assert.Zero(t, f.counts[0], "%s: released early", what)
			passOn(t, got)
			if full {
				view, copied := readAll(t, got)
				assert.NoError(t, view, what)
				assert.NoError(t, copied, what)
			}
		})
		noPanic(t, what, got.Release)
	}
	if f.device.Array.Release != 0 || f.counts[0] != releases || f.counts[1] != 0 {
		t.Errorf("%s: release %#x, %d calls of the root's, want %d, and %d below, want 0", what, f.device.Array.Release, f.counts[0], releases, f.counts[1])
	}
	return err
}

// eachCase runs body for every type of arrow-go in every variant, with an array
// whose memory is checked to be free afterwards.
func eachCase(t *testing.T, body func(t *testing.T, arr arrow.Array)) {
	t.Helper()
	for _, c := range cases.All() {
		for _, v := range cases.Variants {
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				checkLeaks(t)
				mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
				defer mem.AssertSize(t, 0)
				arr, err := c.Array(mem, v)
				require.NoError(t, err)
				defer arr.Release()
				body(t, arr)
			})
		}
	}
}

// testRows runs every row as an array and as a batch, with each kind of struct.
func testRows(t *testing.T, rows []badRow) {
	t.Helper()
	for _, row := range rows {
		for _, w := range []way{asArray, asBatch} {
			if row.only == "" || row.only == w {
				t.Run(row.name+"/"+string(w), func(t *testing.T) {
					eachKind(t, func(t *testing.T, k kind) { row.run(t, w, k) })
				})
			}
		}
	}
}
