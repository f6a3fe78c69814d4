package cdevice

import (
	"context"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// ImportRecordBatch makes a batch of a C struct, without copying. Nothing of the
// data is read and nothing waits: the structs are checked against the schema,
// and a sync event is kept for whoever reads the data first.
//
// The C struct is a struct array without nulls and without an offset of its own;
// ImportArray takes one that has them.
//
// It takes ownership of *arr and *sch, also when it returns an error: both are
// marked released. The producer's release callback runs when the last user of
// the memory is gone, on that user's thread.
//
// Errors are [FieldError], and wrap arrow.ErrInvalid for malformed structs,
// [ErrReleased] for released ones, arrow.ErrNotImplemented for types that
// arrow-go does not have.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#the-arrowdevicearray-structure
func ImportRecordBatch(arr *CArrowDeviceArray, sch *cdata.CArrowSchema, opts ...ImportOption) (*RecordBatch, error) {
	s, err := schema.ImportSchema(schemaMirror(sch))
	if err != nil {
		ReleaseCArrowDeviceArray(arr)
		return nil, err
	}
	return ImportRecordBatchWithSchema(arr, s, opts...)
}

// ImportRecordBatchWithSchema is [ImportRecordBatch] where the schema is known,
// as it is for a stream.
//
// It takes ownership of *arr, also when it returns an error.
func ImportRecordBatchWithSchema(arr *CArrowDeviceArray, s *arrow.Schema, opts ...ImportOption) (*RecordBatch, error) {
	if err := checkTop(arr); err != nil {
		return nil, err
	}
	columns, err := importColumns(arr, s)
	if err != nil {
		releaseArray(&arr.Array)
		return nil, within("ArrowDeviceArray", err)
	}
	rows, at := arr.Array.Length, placeOf(arr)
	b := newRecordBatch(adopt(&arr.Array), at, s, rows, columns)
	if err := afterImport(b.mem, at, columns, opts); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

// ImportArray makes an array of a C struct and its schema; all of
// [ImportRecordBatch] holds. The array's Field has the schema's name,
// nullability and metadata.
//
// It takes ownership of *arr and *sch, also when it returns an error.
func ImportArray(arr *CArrowDeviceArray, sch *cdata.CArrowSchema, opts ...ImportOption) (*Array, error) {
	field, err := schema.Import(schemaMirror(sch))
	if err != nil {
		ReleaseCArrowDeviceArray(arr)
		return nil, err
	}
	return importArray(arr, field, opts)
}

// ImportArrayWithType is [ImportArray] where the type is known.
//
// It takes ownership of *arr, also when it returns an error.
func ImportArrayWithType(arr *CArrowDeviceArray, dt arrow.DataType, opts ...ImportOption) (*Array, error) {
	return importArray(arr, arrow.Field{Type: dt, Nullable: true}, opts)
}

// ImportSchema makes an arrow-go schema of a C schema, which must be a struct.
// It takes ownership of *sch, also when it returns an error.
func ImportSchema(sch *cdata.CArrowSchema) (*arrow.Schema, error) {
	return schema.ImportSchema(schemaMirror(sch))
}

// ImportField makes an arrow-go field of a C schema. It takes ownership of *sch,
// also when it returns an error.
func ImportField(sch *cdata.CArrowSchema) (arrow.Field, error) {
	return schema.Import(schemaMirror(sch))
}

func importArray(arr *CArrowDeviceArray, field arrow.Field, opts []ImportOption) (*Array, error) {
	if err := checkTop(arr); err != nil {
		return nil, err
	}
	root, err := importRoot(arr, field.Type)
	if err != nil {
		releaseArray(&arr.Array)
		return nil, within("ArrowDeviceArray", err)
	}
	at := placeOf(arr)
	a := newArray(adopt(&arr.Array), at, field, root[0])
	if err := afterImport(a.mem, at, root, opts); err != nil {
		a.Release()
		return nil, err
	}
	return a, nil
}

// checkTop looks at what must be there before the struct can even be released.
func checkTop(arr *CArrowDeviceArray) error {
	if arr == nil {
		return invalid(opImport, "ArrowDeviceArray", "NULL", "a struct")
	}
	if arr.Array.Release == 0 {
		return fieldError(opImport, "ArrowDeviceArray.array.release", "NULL", nil, ErrReleased)
	}
	return nil
}

func placeOf(arr *CArrowDeviceArray) place {
	at := place{id: device.ID{Type: device.Type(arr.DeviceType), Ordinal: arr.DeviceID}, event: arr.SyncEvent}
	if at.id.Type == device.CPU {
		at.id.Ordinal = device.NoOrdinal // some producers number the CPU
	}
	return at
}

// checkDevice checks the members that ArrowDeviceArray adds to ArrowArray. A
// positive type that this library does not know is carried, not interpreted.
func checkDevice(arr *CArrowDeviceArray) error {
	id, event := arr.DeviceID, arr.SyncEvent
	switch t := device.Type(arr.DeviceType); t {
	case device.CPU:
		if id != device.NoOrdinal && id != 0 {
			return invalid(opImport, "device_id", id, "-1 for cpu")
		}
		if event != 0 {
			return invalid(opImport, "sync_event", hex(event), "NULL for cpu")
		}
	case device.CUDA, device.CUDAManaged, device.CUDAHost:
		least := int64(0)
		if t == device.CUDAHost {
			least = device.NoOrdinal // pinned memory belongs to every device; Arrow C++ says so
		}
		if id < least || id > math.MaxInt32 {
			return invalid(opImport, "device_id", id, fmt.Sprintf("a device ordinal for %s", t))
		}
		if event%sizeofPointer != 0 {
			return invalid(opImport, "sync_event", hex(event), "the address of a CUevent")
		}
	default:
		if t <= 0 {
			return invalid(opImport, "device_type", int32(t), "a positive ArrowDeviceType")
		}
	}
	return nil
}

func hex(v uintptr) string { return fmt.Sprintf("%#x", v) }

// importColumns makes the nodes of a record batch's columns. It changes nothing.
func importColumns(arr *CArrowDeviceArray, s *arrow.Schema) ([]node, error) {
	if s == nil {
		return nil, invalid(opImport, "schema", "nil", "a schema")
	}
	if err := checkDevice(arr); err != nil {
		return nil, err
	}
	root := &arr.Array
	count := 0
	for i := range s.NumFields() {
		below, err := countNodes(s.Field(i).Type, 1)
		if err != nil {
			return nil, fieldError(opImport, fmt.Sprintf("schema.field[%d].type", i), nil, nil, err)
		}
		count += below
	}
	if err := checkBatchRoot(root, s.NumFields()); err != nil {
		return nil, within("array", err)
	}
	nodes := make([]node, count)
	columns := take(&nodes, s.NumFields())
	im := importer{nodes: nodes}
	pointers := abi.Slice[uintptr](root.Children, len(columns))
	for i := range columns {
		if err := im.child(&columns[i], pointers[i], s.Field(i).Type, root.Length); err != nil {
			return nil, within("array", within(childName(i), err))
		}
		if columns[i].length > root.Length {
			columns[i] = columns[i].slice(0, root.Length)
		}
	}
	return columns, nil
}

func importRoot(arr *CArrowDeviceArray, dt arrow.DataType) ([]node, error) {
	if err := checkDevice(arr); err != nil {
		return nil, err
	}
	count, err := countNodes(dt, 0)
	if err != nil {
		return nil, fieldError(opImport, "schema.type", nil, nil, err)
	}
	nodes := make([]node, count)
	root := take(&nodes, 1)
	im := importer{nodes: nodes}
	if err := im.node(&root[0], &arr.Array, dt); err != nil {
		return nil, within("array", err)
	}
	return root, nil
}

// checkBatchRoot checks the struct array that stands for a record batch: its
// columns are what counts, so that nothing may be hidden in the parent.
func checkBatchRoot(a *abi.ArrowArray, columns int) error {
	if a.Length < 0 {
		return invalid(opImport, "length", a.Length, "at least 0")
	}
	if a.Offset != 0 {
		return invalid(opImport, "offset", a.Offset, "0 for a record batch")
	}
	if a.NBuffers != 1 {
		return invalid(opImport, "n_buffers", a.NBuffers, "1 for a record batch")
	}
	if a.Buffers == 0 || a.Buffers%sizeofPointer != 0 {
		return invalid(opImport, "buffers", hex(a.Buffers), "an array of 1 pointer")
	}
	bitmap := *abi.At[uintptr](a.Buffers)
	if a.NullCount > 0 || a.NullCount < unknownNulls || a.NullCount == unknownNulls && bitmap != 0 {
		return invalid(opImport, "null_count", a.NullCount, "0 for a record batch")
	}
	if a.Dictionary != 0 {
		return invalid(opImport, "dictionary", hex(a.Dictionary), "NULL for a record batch")
	}
	return checkChildren(a, columns, "a record batch")
}

func checkChildren(a *abi.ArrowArray, want int, what any) error {
	if a.NChildren != int64(want) {
		return invalid(opImport, "n_children", a.NChildren, fmt.Sprintf("%d for %s", want, what))
	}
	if want > 0 && (a.Children == 0 || a.Children%sizeofPointer != 0) {
		return invalid(opImport, "children", hex(a.Children), fmt.Sprintf("an array of %d pointers", want))
	}
	return nil
}

// importer makes nodes of C structs, guided by the type: a struct is read only
// where the type demands one, so that no cycle among structs is followed.
type importer struct {
	nodes []node // not yet used
}

// child imports the struct that an entry of ArrowArray.children points to.
func (im *importer) child(n *node, addr uintptr, dt arrow.DataType, least int64) error {
	if addr == 0 || addr%sizeofPointer != 0 {
		return fieldError(opImport, "pointer", hex(addr), "the address of a struct", arrow.ErrInvalid)
	}
	a := abi.At[abi.ArrowArray](addr)
	if a.Release == 0 {
		return fieldError(opImport, "release", "NULL", nil, ErrReleased)
	}
	if err := im.node(n, a, dt); err != nil {
		return err
	}
	if n.length < least {
		return invalid(opImport, "length", n.length, fmt.Sprintf("at least %d", least))
	}
	return nil
}

func (im *importer) node(n *node, a *abi.ArrowArray, dt arrow.DataType) error {
	st, l := layoutOf(dt)
	if err := checkCounts(a, st, l); err != nil {
		return err
	}
	n.dtype, n.layout, n.length, n.offset = dt, l, a.Length, a.Offset
	n.buffers = abi.Slice[uintptr](a.Buffers, int(a.NBuffers))
	n.nulls = knownNulls(l, a.Length, a.NullCount, bitmapOf(l, n.buffers))
	if err := checkBuffers(n, a.NullCount, st, l); err != nil {
		return err
	}
	return im.children(n, a, st)
}

func (im *importer) children(n *node, a *abi.ArrowArray, st arrow.DataType) error {
	if n.layout.store == storeDictionary {
		if a.Dictionary == 0 {
			return invalid(opImport, "dictionary", "NULL", fmt.Sprintf("a struct for %s", st))
		}
		if err := checkChildren(a, 0, st); err != nil {
			return err
		}
		n.children = take(&im.nodes, 1)
		return within("dictionary", im.child(&n.children[0], a.Dictionary, childType(st, 0), 0))
	}
	if a.Dictionary != 0 {
		return invalid(opImport, "dictionary", hex(a.Dictionary), fmt.Sprintf("NULL for %s", st))
	}
	count := n.layout.childCount(st)
	if err := checkChildren(a, count, st); err != nil || count == 0 {
		return err
	}
	n.children = take(&im.nodes, count)
	least := childLength(st, n.offset+n.length)
	for i, addr := range abi.Slice[uintptr](a.Children, count) {
		if err := im.child(&n.children[i], addr, childType(st, i), least); err != nil {
			return within(childName(i), err)
		}
	}
	if n.layout.store == storeRunEnds {
		return checkRuns(n)
	}
	return nil
}

// checkRuns checks what the structs of a run-end encoded array tell.
func checkRuns(n *node) error {
	ends, values := &n.children[0], &n.children[1]
	if ends.nulls > 0 {
		return invalid(opImport, "children[0].null_count", ends.nulls, "0 for run ends")
	}
	if n.length > 0 && ends.length == 0 {
		return invalid(opImport, "children[0].length", ends.length, "at least 1")
	}
	if values.length < ends.length {
		return invalid(opImport, "children[1].length", values.length, fmt.Sprintf("at least %d", ends.length))
	}
	return nil
}

func checkCounts(a *abi.ArrowArray, st arrow.DataType, l *layout) error {
	if a.Length < 0 {
		return invalid(opImport, "length", a.Length, "at least 0")
	}
	if a.Offset < 0 || a.Offset > math.MaxInt64-a.Length {
		return invalid(opImport, "offset", a.Offset, fmt.Sprintf("0 to %d with length %d", math.MaxInt64-a.Length, a.Length))
	}
	if a.NullCount < unknownNulls || a.NullCount > a.Length {
		return invalid(opImport, "null_count", a.NullCount, fmt.Sprintf("-1 to %d", a.Length))
	}
	if a.NBuffers != int64(l.buffers) && (l.store != storeView || a.NBuffers < int64(l.buffers) || a.NBuffers > math.MaxInt32) {
		return invalid(opImport, "n_buffers", a.NBuffers, wantBuffers(l, st))
	}
	if a.NBuffers > 0 && (a.Buffers == 0 || a.Buffers%sizeofPointer != 0) {
		return invalid(opImport, "buffers", hex(a.Buffers), fmt.Sprintf("an array of %d pointers", a.NBuffers))
	}
	return nil
}

func wantBuffers(l *layout, st arrow.DataType) string {
	if l.store == storeView {
		return fmt.Sprintf("at least %d for %s", l.buffers, st)
	}
	return fmt.Sprintf("%d for %s", l.buffers, st)
}

func bitmapOf(l *layout, buffers []uintptr) uintptr {
	if !l.validity {
		return 0
	}
	return buffers[0]
}

// checkBuffers finds NULL where there must be data. The bytes of binary arrays
// and of views may be NULL: whether any are needed, only the contents tell.
func checkBuffers(n *node, nullCount int64, st arrow.DataType, l *layout) error {
	if l.validity && n.buffers[0] == 0 && nullCount > 0 {
		return invalid(opImport, "buffers[0]", "NULL", fmt.Sprintf("a validity bitmap for null_count %d", nullCount))
	}
	end := n.offset + n.length
	if n.length > 0 {
		for i := range l.buffers {
			if n.buffers[i] == 0 && !(l.validity && i == 0) && leastSize(st, l, i, end) > 0 {
				return invalid(opImport, fmt.Sprintf("buffers[%d]", i), "NULL", fmt.Sprintf("data for length %d", n.length))
			}
		}
	}
	if l.store == storeView {
		return checkViewSizes(n.buffers)
	}
	return nil
}

// checkViewSizes reads the sizes of the variadic buffers, which are host memory
// on every device.
func checkViewSizes(buffers []uintptr) error {
	variadic := len(buffers) - 3
	if variadic == 0 {
		return nil
	}
	last := len(buffers) - 1
	if buffers[last] == 0 || buffers[last]%sizeofPointer != 0 {
		return invalid(opImport, fmt.Sprintf("buffers[%d]", last), hex(buffers[last]), fmt.Sprintf("the sizes of %d buffers", variadic))
	}
	for i, size := range abi.Slice[int64](buffers[last], variadic) {
		if size < 0 || size > maxBufferSize {
			return invalid(opImport, fmt.Sprintf("buffers[%d][%d]", last, i), size, fmt.Sprintf("0 to %d", int64(maxBufferSize)))
		}
		if size > 0 && buffers[2+i] == 0 {
			return invalid(opImport, fmt.Sprintf("buffers[%d]", 2+i), "NULL", fmt.Sprintf("%d bytes", size))
		}
	}
	return nil
}

// afterImport does what needs the memory to be ours.
func afterImport(mem *memoryOwner, at place, nodes []node, opts []ImportOption) error {
	if at.id.Type == device.CPU {
		mem.replaceNulls(nodes)
	}
	if len(opts) == 0 {
		return nil
	}
	var o importOptions
	for _, opt := range opts {
		opt(&o)
	}
	if !o.full {
		return nil
	}
	if !hostReadable(at.id) {
		return fieldError(opImport, "ArrowDeviceArray.device_type", at.id.Type, "memory that the host can read (WithFullValidation)", device.ErrNotSupported)
	}
	if err := at.wait(context.Background()); err != nil {
		return err
	}
	return checkContents(nodes)
}

// replaceNulls applies withoutNulls to a whole tree of host memory.
func (m *memoryOwner) replaceNulls(nodes []node) {
	for i := range nodes {
		n := &nodes[i]
		own := withoutNulls(n.layout, n.buffers)
		if len(own) > 0 && &own[0] != &n.buffers[0] {
			m.pin(&own[0])
			n.buffers = own
		}
		if len(n.children) > 0 {
			m.replaceNulls(n.children)
		}
	}
}
