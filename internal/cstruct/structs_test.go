package cstruct

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// choices are made of the bytes of a fuzzer; after them, all are 0.
type choices []byte

// below returns a number from 0 to n-1.
func (c *choices) below(n int) int {
	if len(*c) == 0 || n <= 1 {
		return 0
	}
	v := (*c)[0]
	*c = (*c)[1:]
	return int(v) % n
}

// acceptedOf runs a comparison with n random choices, and counts those that it accepts by type.
func acceptedOf(t *testing.T, random *rand.Rand, n, size int, compare func(*testing.T, choices) (string, bool)) map[string]int {
	t.Helper()
	accepted := map[string]int{}
	for i := range n {
		c := choices{byte(i)}
		for range size {
			c = append(c, byte(random.Uint32()))
		}
		if name, ok := compare(t, c); ok {
			accepted[name]++
		}
		if t.Failed() {
			t.Fatalf("of the bytes %q", []byte(c))
		}
	}
	return accepted
}

// fuzz runs a comparison with the choices of a fuzzer.
func fuzz(f *testing.F, compare func(*testing.T, choices) (string, bool)) {
	for i := range types {
		f.Add([]byte{byte(i)})
		f.Add([]byte{byte(i), 1, 2, 1, 2, 3, 1, 0, 2, 1, 1, 2, 3, 3, 2, 1})
	}
	f.Fuzz(func(t *testing.T, bytes []byte) { compare(t, bytes) })
}

// types are those of the cases.
var types = func() (all []arrow.DataType) {
	for _, c := range cases.All() {
		all = append(all, c.Type)
	}
	return all
}()

// dataType returns a type of the cases, or a nested type of others.
func (c *choices) dataType(depth int) arrow.DataType {
	if depth > 0 {
		inner := func() arrow.DataType { return c.dataType(depth - 1) }
		switch c.below(9) {
		case 1:
			return arrow.ListOf(inner())
		case 2:
			return arrow.FixedSizeListOf([]int32{1, 2, 3, math.MaxInt32}[c.below(4)], inner())
		case 3:
			return arrow.StructOf(arrow.Field{Name: "x", Type: inner()}, arrow.Field{Name: "y", Type: inner()})
		case 4:
			return &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: inner()}
		case 5:
			return arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, inner())
		}
	}
	return types[c.below(len(types))]
}

// structMaker makes ArrowArray structs that are as their types demand, and then changes them. The structs, and what they
// point to, are in Go memory.
type structMaker struct {
	choices
	all  []*abi.ArrowArray
	keep []any
}

// spare is how many entries a list has behind those that its struct announces, which a change may announce.
const spare = 4

// contents is what all buffers point to. As sizes of views, it is zeros.
var contents [64]int64

func (m *structMaker) list(entries ...uintptr) uintptr {
	all := make([]uintptr, len(entries), len(entries)+spare)
	copy(all, entries)
	for range spare {
		all = append(all, uintptr(unsafe.Pointer(&contents)))
	}
	m.keep = append(m.keep, all)
	return uintptr(unsafe.Pointer(&all[0]))
}

// array makes a struct of an array with at least so many elements.
func (m *structMaker) array(dt arrow.DataType, least int64) *abi.ArrowArray {
	st, l := layout.Of(dt)
	a := &abi.ArrowArray{Length: least + int64(m.below(2)), Offset: int64(m.below(3)), Release: 1}
	m.all = append(m.all, a)
	if l.Validity && a.Length > 0 {
		a.NullCount = int64(m.below(3)) - 1
	}
	buffers := make([]uintptr, l.Buffers)
	if l.Kind == layout.View {
		buffers = make([]uintptr, l.Buffers+m.below(3))
	}
	for i := range buffers {
		buffers[i] = uintptr(unsafe.Pointer(&contents))
	}
	if l.Kind == layout.View {
		sizes := make([]int64, len(buffers)+spare)
		m.keep = append(m.keep, sizes)
		for i := range len(buffers) - 3 {
			sizes[i] = int64(m.below(2))
		}
		buffers[len(buffers)-1] = uintptr(unsafe.Pointer(&sizes[0]))
	}
	a.NBuffers, a.Buffers = int64(len(buffers)), m.list(buffers...)
	switch l.Kind {
	case layout.Dictionary:
		a.Dictionary = m.address(m.array(layout.ChildType(st, 0), 0))
	case layout.RunEnds:
		ends := m.array(layout.ChildType(st, 0), 1)
		ends.NullCount = 0
		m.setChildren(a, ends, m.array(layout.ChildType(st, 1), ends.Length))
	default:
		end, _ := layout.ChildLength(st, a.Offset+a.Length)
		var children []*abi.ArrowArray
		for i := range l.ChildCount(st) {
			children = append(children, m.array(layout.ChildType(st, i), end))
		}
		m.setChildren(a, children...)
	}
	return a
}

func (m *structMaker) address(a *abi.ArrowArray) uintptr { return uintptr(unsafe.Pointer(a)) }

func (m *structMaker) setChildren(a *abi.ArrowArray, children ...*abi.ArrowArray) {
	pointers := make([]uintptr, len(children))
	for i, c := range children {
		pointers[i] = m.address(c)
	}
	a.NChildren, a.Children = int64(len(children)), m.list(pointers...)
	for i := range spare {
		abi.Slice[uintptr](a.Children, len(children)+spare)[len(children)+i] = m.address(a)
	}
}

// batch makes the struct of a record batch of the types.
func (m *structMaker) batch(types ...arrow.DataType) *abi.ArrowArray {
	root := &abi.ArrowArray{Length: int64(m.below(4)), Offset: int64(m.below(2)), Release: 1, NBuffers: 1}
	m.all = append(m.all, root)
	var columns []*abi.ArrowArray
	for _, dt := range types {
		columns = append(columns, m.array(dt, root.Offset+root.Length))
	}
	root.Buffers = m.list(0)
	m.setChildren(root, columns...)
	return root
}

// count returns a number that a struct may announce in place of its own.
func (m *structMaker) count(own int64) int64 {
	const most = layout.MaxBufferSize
	all := []int64{own + 1, own - 1, 0, -1, -2, 1, 2, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64, math.MaxInt64 / 3,
		layout.FlatMost, layout.FlatMost + 1, most, most + 1, most / 4, most/4 + 1, most / 8, most / 16, most/16 + 1, most * 8, most*8 + 1}
	return all[m.below(len(all))]
}

// pointer returns NULL, an address that cannot be that of a struct, or another.
func (m *structMaker) pointer(own, other uintptr) uintptr {
	return []uintptr{0, own | 1, other, own}[m.below(4)]
}

// change changes one member of one struct, or one pointer in one of its lists.
func (m *structMaker) change() {
	a := m.all[m.below(len(m.all))]
	other := m.address(m.all[m.below(len(m.all))])
	view := a.NBuffers >= 3
	entries := func(list uintptr, n int64) []uintptr {
		if list%sizeofPointer != 0 || n < 0 || n > 8 {
			return nil
		}
		return abi.Slice[uintptr](list, int(n))
	}
	switch m.below(12) {
	case 0:
		a.Length = m.count(a.Length)
	case 1:
		a.Offset = m.count(a.Offset)
	case 2:
		a.NullCount = m.count(a.Length)
	case 3:
		if n := m.count(a.NBuffers); n < a.NBuffers+spare || n > math.MaxInt32 {
			a.NBuffers = n
		}
	case 4:
		a.NChildren = []int64{a.NChildren + 1, a.NChildren - 1, 0, -1, math.MaxInt64}[m.below(5)]
	case 5:
		a.Buffers = m.pointer(a.Buffers, a.Buffers)
	case 6:
		a.Children = m.pointer(a.Children, a.Children)
	case 7:
		a.Dictionary = m.pointer(a.Dictionary, other)
	case 8:
		a.Release = 0
	case 9:
		if b := entries(a.Buffers, a.NBuffers); len(b) > 0 {
			i := m.below(len(b))
			b[i] = []uintptr{0, b[i] | 1}[m.below(2)]
		}
	case 10:
		if c := entries(a.Children, a.NChildren); len(c) > 0 {
			i := m.below(len(c))
			c[i] = m.pointer(c[i], other)
		}
	case 11:
		if b := entries(a.Buffers, a.NBuffers); view && len(b) > 0 && b[len(b)-1] != 0 && b[len(b)-1]%sizeofPointer == 0 && b[len(b)-1] != uintptr(unsafe.Pointer(&contents)) {
			abi.Slice[int64](b[len(b)-1], len(b))[m.below(len(b))] = m.count(1)
		}
	}
}
