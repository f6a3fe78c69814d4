package cdevice

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ArrayData describes an array in memory that the caller filled, for example by a kernel or by cuBLAS.
// It has the fields of the ArrowArray struct.
//
// https://arrow.apache.org/docs/format/CDataInterface.html#the-arrowarray-structure
type ArrayData struct {
	Length, Offset int64
	NullCount      int64 // -1 if it is not known
	// Buffers are addresses on the device, in the order of the columnar format. For a binary_view
	// or utf8_view array, they are validity, views, then any number of data buffers. Without nulls,
	// the address of the validity bitmap may be 0.
	Buffers []device.Ptr
	// ViewSizes are the sizes in bytes of the data buffers of a binary_view or utf8_view array,
	// which Buffers has from index 2. Other arrays have none.
	ViewSizes  []int64
	Children   []ArrayData
	Dictionary *ArrayData
}

// Lifetime says from when the memory may be read, and what to call after its last use.
type Lifetime struct {
	// Ready is complete when the memory may be read; nil if it already may be. It is an event of the device that the
	// memory is on, or of a device with the same streams; another one is an error that wraps arrow.ErrInvalid. The
	// array or batch owns the event, and closes it when the memory is released.
	Ready device.Event
	// Release is called once, on any goroutine, after the last use of the memory and then after all pending
	// work of the device, of streams that [RecordBatch.UsedOn] did not record, too: any work of the program may
	// use memory of the program. It may be nil.
	Release func()
}

// NewArray makes an array of memory on dev that the caller filled, without reading it.
// The fields are checked as those of an imported struct are.
//
// It takes ownership of the memory, even if it returns an error: lifetime ends it in any case.
func NewArray(dev device.Device, dt arrow.DataType, data ArrayData, lifetime Lifetime) (*Array, error) {
	if argument.IsNil(dt) {
		lifetime.end(dev)
		return nil, fielderr.Absent(fielderr.OpNew, "type", "a data type")
	}
	mem, at, nodes, err := newNodes(dev, lifetime, []arrow.DataType{dt}, []ArrayData{data}, func(int) string { return "data" })
	if err != nil {
		return nil, err
	}
	return newArray(mem, at, arrow.Field{Type: dt, Nullable: true}, nodes[0]), nil
}

// NewRecordBatch makes a batch of memory on dev that the caller filled: one ArrayData for each
// field of the schema, of at least the given number of rows. Everything said of [NewArray] holds. As everywhere in
// arrow-go, a field that is not nullable is not checked for nulls.
func NewRecordBatch(dev device.Device, schema *arrow.Schema, rows int64, columns []ArrayData, lifetime Lifetime) (*RecordBatch, error) {
	var types []arrow.DataType
	if schema != nil {
		for _, f := range schema.Fields() {
			types = append(types, f.Type)
		}
	}
	check := func() error {
		if schema == nil {
			return fielderr.Invalid(fielderr.OpNew, "schema", "nil", "a schema")
		}
		if len(columns) != len(types) {
			return fielderr.Fields(fielderr.OpNew, len(types), len(columns))
		}
		if rows < 0 {
			return fielderr.Invalid(fielderr.OpNew, "rows", rows, "at least 0")
		}
		return nil
	}
	if err := check(); err != nil {
		lifetime.end(dev)
		return nil, err
	}
	mem, at, nodes, err := newNodes(dev, lifetime, types, columns, tree.ColumnName)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		if n := &nodes[i]; n.Length < rows {
			mem.Release()
			return nil, fielderr.Within(tree.ColumnName(i), fielderr.Invalid(fielderr.OpNew, "length", n.Length, fmt.Sprintf("at least %d", rows)))
		} else if n.Length > rows {
			*n = n.Slice(0, rows)
		}
	}
	return newRecordBatch(mem, at, schema, rows, nodes), nil
}

// callersMemory is the memory that a caller passed to NewArray or NewRecordBatch.
type callersMemory struct{ lifetime Lifetime }

// Release releases the memory, which no pending work of the device uses: the owner has waited for it.
func (m *callersMemory) Release() { m.lifetime.end(nil) }

// OwnedByProgram marks memory that ends by a function of the program.
func (m *callersMemory) OwnedByProgram() {}

// check returns an error for an event that says nothing of the memory.
func (l Lifetime) check(at tree.Location) error {
	const name = "Lifetime.Ready"
	switch {
	case l.Ready == nil:
		return nil
	case argument.IsNil(l.Ready):
		return fielderr.Absent(fielderr.OpNew, name, "an event, or no value of a type")
	}
	return at.CheckEvent(fielderr.OpNew, name, l.Ready)
}

// end releases the memory, after pending work of the device unless that is nil.
func (l Lifetime) end(dev device.Device) {
	tree.CloseEvent(l.Ready)
	switch {
	case l.Release == nil:
	case argument.IsNil(dev):
		l.Release()
	default:
		dev.AfterWork(l.Release)
	}
}

func newNodes(dev device.Device, lifetime Lifetime, types []arrow.DataType, data []ArrayData, name func(int) string) (mem *tree.Owner, at tree.Location, nodes []tree.Node, err error) {
	if argument.IsNil(dev) {
		lifetime.end(nil)
		return nil, at, nil, fielderr.Absent(fielderr.OpNew, "device", "a device")
	}
	at = tree.Location{ID: dev.ID(), Dev: dev}
	if err := lifetime.check(at); err != nil {
		lifetime.end(dev)
		return nil, at, nil, err
	}
	mem = tree.Own(&callersMemory{lifetime})
	if lifetime.Release != nil {
		mem.UsedOn(dev, nil, nil)
	}
	defer func() {
		if err != nil {
			mem.Release()
			mem = nil
		}
	}()
	var size structs
	for i := range data {
		size.measure(&data[i])
	}
	size.allocate(mem)
	defer runtime.KeepAlive([]any{size.arrays, size.pointers}) // read through addresses
	count := 0
	for i, dt := range types {
		if err := countType(dt, &count); err != nil {
			return mem, at, nil, fielderr.New(fielderr.OpNew, name(i)+".type", nil, nil, err)
		}
	}
	all := make([]tree.Node, count)
	nodes = tree.Take(&all, len(types))
	im := cstruct.Parser{Nodes: all}
	for i := range data {
		a, err := size.fill(&data[i], types[i])
		if err != nil {
			return mem, at, nil, fielderr.Within(name(i), err)
		}
		if err := im.Node(&nodes[i], a, types[i]); err != nil {
			return mem, at, nil, fielderr.Within(name(i), fielderr.During(fielderr.OpNew, err))
		}
	}
	mem.Size = tree.Bytes(nodes)
	if lifetime.Ready != nil && lifetime.Ready.Handle() != 0 {
		at.Event = mem.PinEvent(lifetime.Ready.Handle())
	}
	return mem, at, nodes, nil
}

func countType(dt arrow.DataType, count *int) (err error) {
	defer layout.RecoverType(&err)
	return layout.CountNodes(dt, 0, count)
}

// structs holds ArrayData as the structs that an import reads, in memory that does not move and
// that exports may point to.
type structs struct {
	nArrays, nPointers, nBuffers, nSizes int

	arrays   []abi.ArrowArray
	pointers []uintptr
	buffers  []uintptr
	sizes    []int64
}

func (s *structs) measure(d *ArrayData) {
	s.nArrays++
	s.nBuffers += len(d.Buffers) + 1
	s.nSizes += len(d.ViewSizes)
	s.nPointers += len(d.Children)
	for i := range d.Children {
		s.measure(&d.Children[i])
	}
	if d.Dictionary != nil {
		s.measure(d.Dictionary)
	}
}

func (s *structs) allocate(mem *tree.Owner) {
	s.arrays = make([]abi.ArrowArray, s.nArrays)
	s.buffers = make([]uintptr, s.nBuffers)
	s.pointers = make([]uintptr, s.nPointers)
	s.sizes = make([]int64, s.nSizes)
	if s.nBuffers > 0 {
		mem.Pin(&s.buffers[0])
	}
	if s.nSizes > 0 {
		mem.Pin(&s.sizes[0])
	}
}

// notReleased is a release callback that is never called. It marks a struct as not released.
const notReleased = 1

// fill makes the structs of an array of the type. The type is nil for a child that the parent's
// type does not have; the import then refuses the array.
func (s *structs) fill(d *ArrayData, dt arrow.DataType) (*abi.ArrowArray, error) {
	st, l := layout.Of(dt)
	if err := checkSizes(d, st, l); err != nil {
		return nil, err
	}
	a := &tree.Take(&s.arrays, 1)[0]
	*a = abi.ArrowArray{
		Length: d.Length, NullCount: d.NullCount, Offset: d.Offset,
		NBuffers: int64(len(d.Buffers)), NChildren: int64(len(d.Children)), Release: notReleased,
	}
	buffers := tree.Take(&s.buffers, len(d.Buffers)+1)
	for i, p := range d.Buffers {
		buffers[i] = uintptr(p)
	}
	if l.Kind == layout.View {
		buffers[len(d.Buffers)] = s.fillSizes(d.ViewSizes)
		a.NBuffers++
	}
	a.Buffers = uintptr(unsafe.Pointer(&buffers[0]))
	return a, s.fillChildren(a, d, st, l)
}

// fillSizes returns the address of a copy of the sizes.
func (s *structs) fillSizes(from []int64) uintptr {
	if len(from) == 0 {
		return bridge.Zeros
	}
	sizes := tree.Take(&s.sizes, len(from))
	copy(sizes, from)
	return uintptr(unsafe.Pointer(&sizes[0]))
}

func (s *structs) fillChildren(a *abi.ArrowArray, d *ArrayData, st arrow.DataType, l *layout.Layout) error {
	known := l.ChildCount(st)
	if l.Kind == layout.Dictionary {
		known = 0 // the only child is the dictionary
	}
	if len(d.Children) > 0 {
		pointers := tree.Take(&s.pointers, len(d.Children))
		a.Children = uintptr(unsafe.Pointer(&pointers[0]))
		for i := range d.Children {
			var dt arrow.DataType
			if i < known {
				dt = layout.ChildType(st, i)
			}
			child, err := s.fill(&d.Children[i], dt)
			if err != nil {
				return fielderr.Within(fielderr.Child(i), err)
			}
			pointers[i] = uintptr(unsafe.Pointer(child))
		}
	}
	if d.Dictionary != nil {
		var dt arrow.DataType
		if l.Kind == layout.Dictionary {
			dt = layout.ChildType(st, 0)
		}
		dictionary, err := s.fill(d.Dictionary, dt)
		if err != nil {
			return fielderr.Within("dictionary", err)
		}
		a.Dictionary = uintptr(unsafe.Pointer(dictionary))
	}
	return nil
}

// checkSizes checks that each data buffer of views has a size. Otherwise the import would take the
// caller's last buffer for the struct's buffer of sizes.
func checkSizes(d *ArrayData, st arrow.DataType, l *layout.Layout) error {
	switch data := len(d.Buffers) - 2; {
	case l.Kind == layout.Unknown:
		return nil // a child without a type: the import refuses it
	case l.Kind != layout.View && len(d.ViewSizes) > 0:
		return fielderr.Invalid(fielderr.OpNew, "ViewSizes", fielderr.HowMany(len(d.ViewSizes), "size"), fmt.Sprintf("none for %s", fielderr.Describe(st)))
	case l.Kind != layout.View:
		return nil
	case data < 0:
		return fielderr.Invalid(fielderr.OpNew, "Buffers", fielderr.HowMany(len(d.Buffers), "buffer"), fmt.Sprintf("at least 2 for %s: validity and views", fielderr.Describe(st)))
	case len(d.ViewSizes) != data:
		return fielderr.Invalid(fielderr.OpNew, "ViewSizes", fielderr.HowMany(len(d.ViewSizes), "size"), fmt.Sprintf("%d, one for each data buffer", data))
	}
	return nil
}
