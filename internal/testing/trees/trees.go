// Package trees makes trees of arrays for tests of the packages below cdevice, and changes them.
package trees

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// FromJSON returns an array, which the end of the test releases.
func FromJSON(t testing.TB, dt arrow.DataType, text string) arrow.Array {
	t.Helper()
	arr, _, err := array.FromJSON(memory.NewGoAllocator(), dt, strings.NewReader(text))
	require.NoError(t, err)
	t.Cleanup(arr.Release)
	return arr
}

// Of returns the tree of an array in memory of the CPU, which keeps it until the test ends.
func Of(t testing.TB, arr arrow.Array) tree.Tree {
	t.Helper()
	arr.Retain()
	of := Taking(t, arr)
	t.Cleanup(of.Mem.Release)
	return of
}

// Taking returns the tree of an array, whose reference it takes. The caller releases the tree.
func Taking(t testing.TB, arr arrow.Array) tree.Tree {
	t.Helper()
	mem := tree.Own(arr)
	var p cstruct.DataParser
	require.NoError(t, p.Measure(arr.Data()))
	p.Start(mem)
	nodes := p.Take(1)
	require.NoError(t, p.Node(&nodes[0], arr.Data()))
	cpu := device.CPUDevice()
	return tree.Tree{Mem: mem, At: tree.Location{ID: cpu.ID(), Dev: cpu}, Nodes: nodes, Name: tree.ArrayName}
}

// Make returns the tree of a node on a device, with the type for it and those of all below it. Nothing owns its memory.
func Make(dev device.Device, dt arrow.DataType, n tree.Node) tree.Tree {
	setType(&n, dt)
	return tree.Tree{Mem: tree.Own(nothing{}), At: tree.Location{ID: dev.ID(), Dev: dev}, Nodes: []tree.Node{n}, Name: tree.ArrayName}
}

func setType(n *tree.Node, dt arrow.DataType) {
	st, l := layout.Of(dt)
	n.Type, n.Layout = dt, l
	for i := range n.Children {
		setType(&n.Children[i], layout.ChildType(st, i))
	}
}

// nothing is memory that the test ends: what a reader has waited for is known from the release on.
type nothing struct{}

func (nothing) Release()        {}
func (nothing) OwnedByProgram() {}

// Leaf returns an array without children, of a type that Make sets.
func Leaf(length int, buffers ...uintptr) tree.Node {
	return tree.Node{Length: int64(length), Buffers: buffers}
}

// Above returns the array with children.
func Above(n tree.Node, children ...tree.Node) tree.Node { n.Children = children; return n }

// NullAt returns the array with other elements null, which stay what they are in the buffers.
func NullAt(arr arrow.Array, null ...int) arrow.Array {
	d := arr.Data()
	bitmap := make([]byte, (d.Len()+7)/8+1)
	nulls := 0
	for i := range d.Len() {
		if slices.Contains(null, i) || arr.IsNull(i) {
			nulls++
		} else {
			bitmap[i/8] |= 1 << (i % 8)
		}
	}
	buffers := append([]*memory.Buffer{memory.NewBufferBytes(bitmap)}, d.Buffers()[1:]...)
	if d.DataType().ID() == arrow.DICTIONARY {
		return array.MakeFromData(array.NewDataWithDictionary(d.DataType(), d.Len(), buffers, nulls, 0, d.Dictionary().(*array.Data)))
	}
	return array.MakeFromData(array.NewData(d.DataType(), d.Len(), buffers, d.Children(), nulls, 0))
}

// Slice returns elements [i, j) of a tree of one node.
func Slice(t tree.Tree, i, j int64) tree.Tree {
	t.Nodes = []tree.Node{t.Nodes[0].Slice(i, j)}
	return t
}

// Slack is how many zero bytes are behind each buffer of a Loose tree.
const Slack = 4096

// Loose is a tree whose buffers a test may change: they are copies in memory of C, and what is wrong in one of them
// leads no reader out of its slack.
type Loose struct {
	tree.Tree
	sizes map[uintptr]int // of the buffers, with their slack
}

// LooseOf returns the tree of an array.
func LooseOf(t testing.TB, arr arrow.Array) *Loose {
	t.Helper()
	l := &Loose{Of(t, arr), map[uintptr]int{}}
	measure(arr.Data(), l.sizes)
	mem, own := mallocator.NewMallocator(), map[uintptr]int{}
	each(&l.Nodes[0], func(n *tree.Node) {
		n.Buffers = append([]uintptr(nil), n.Buffers...)
		for i, addr := range n.Buffers {
			size, known := l.sizes[addr]
			if isSizes(n, i) {
				size, known = 8*(i-2), true
			}
			if !known {
				continue
			}
			b := mem.Allocate(size + Slack)
			t.Cleanup(func() { mem.Free(b) })
			copy(b, abi.Slice[byte](addr, size))
			n.Buffers[i] = abi.AddressOf(b)
			own[n.Buffers[i]] = len(b)
		}
	})
	l.sizes = own
	return l
}

// Upload returns the tree in memory of a device, each buffer in an allocation of its own. The end of the test releases
// it.
func (l *Loose) Upload(t testing.TB, dev device.Device) tree.Tree {
	t.Helper()
	s, err := dev.NewStream()
	require.NoError(t, err)
	there := l.UploadOn(t, dev, s)
	require.NoError(t, s.Synchronize(t.Context()))
	require.NoError(t, s.Close())
	there.At.Event = 0
	t.Cleanup(there.Mem.Release)
	return there
}

// UploadOn is Upload by work on a stream, behind which is the event of the tree. The caller releases the tree; nothing
// but the functions that read it keep it then.
func (l *Loose) UploadOn(t testing.TB, dev device.Device, s device.Stream) tree.Tree {
	t.Helper()
	own := new(uploaded)
	there := l.Tree
	there.Mem = tree.Own(own)
	there.At = tree.Location{ID: dev.ID(), Dev: dev}
	there.Nodes = clone(l.Nodes)
	each(&there.Nodes[0], func(n *tree.Node) {
		for i, addr := range n.Buffers {
			size, known := l.sizes[addr]
			if isBitmap(addr) {
				size, known = len(bitmaps[0]), true
			}
			if !known || isSizes(n, i) {
				continue
			}
			m, err := dev.Allocate(t.Context(), int64(size), s)
			require.NoError(t, err)
			own.memory = append(own.memory, m)
			require.NoError(t, dev.Copy([]device.Range{{Dst: m.Ptr(), Src: device.Ptr(addr), Size: int64(size)}}, s))
			n.Buffers[i] = uintptr(m.Ptr())
		}
	})
	var err error
	own.ready, err = dev.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(own.ready))
	there.At.Event = there.Mem.PinEvent(own.ready.Handle())
	return there
}

// uploaded is memory of a device, and the event behind its contents.
type uploaded struct {
	memory []device.Memory
	ready  device.Event
}

// Release frees the memory.
func (u *uploaded) Release() {
	for _, m := range u.memory {
		_ = m.FreeAfter(u.ready)
	}
	_ = u.ready.Close()
}

// OwnedByProgram says that the memory ends by a function of a program.
func (*uploaded) OwnedByProgram() {}

// isSizes reports whether buffer i is the one of sizes of views, which is always in memory of the CPU.
func isSizes(n *tree.Node, i int) bool { return n.Layout.Kind == layout.View && i == len(n.Buffers)-1 }

func measure(data arrow.ArrayData, sizes map[uintptr]int) {
	for _, b := range data.Buffers() {
		if b != nil && b.Len() > 0 {
			sizes[abi.AddressOf(b.Bytes())] = max(sizes[abi.AddressOf(b.Bytes())], b.Len())
		}
	}
	for _, child := range data.Children() {
		measure(child, sizes)
	}
	if data.DataType().ID() == arrow.DICTIONARY {
		measure(data.Dictionary(), sizes)
	}
}

func each(n *tree.Node, do func(*tree.Node)) {
	do(n)
	for i := range n.Children {
		each(&n.Children[i], do)
	}
}

func clone(nodes []tree.Node) []tree.Node {
	own := append([]tree.Node(nil), nodes...)
	for i := range own {
		own[i].Buffers = append([]uintptr(nil), own[i].Buffers...)
		own[i].Children = clone(own[i].Children)
	}
	return own
}

// Change changes a node, or one below it.
type Change = func(*tree.Node)

// Both is two changes.
func Both(first, second Change) Change {
	return func(n *tree.Node) { first(n); second(n) }
}

// In changes child i, or the dictionary, which is child 0.
func In(i int, change Change) Change { return func(n *tree.Node) { change(&n.Children[i]) } }

// Length sets the length.
func Length(v int64) Change { return func(n *tree.Node) { n.Length = v } }

// Nulls sets the null count.
func Nulls(v int64) Change { return func(n *tree.Node) { n.Nulls = v } }

// Bitmap gives the node a bitmap whose first byte is as said, at most 3, and the others zero, and sets the null count.
func Bitmap(first byte, nulls int64) Change {
	return func(n *tree.Node) {
		bitmaps[first][0] = first
		n.Buffers[0], n.Nulls = abi.AddressOf(bitmaps[first][:]), nulls
	}
}

var bitmaps [4][64]byte

func isBitmap(addr uintptr) bool {
	return addr >= abi.AddressOf(bitmaps[0][:]) && addr <= abi.AddressOf(bitmaps[3][:])
}

// Put writes a value at index i of a buffer.
func Put[T any](buffer, i int, value T) Change {
	return func(n *tree.Node) {
		var zero T
		*abi.At[T](n.Buffers[buffer] + uintptr(i)*unsafe.Sizeof(zero)) = value
	}
}

// Values returns the first count values of a buffer.
func Values[T any](n *tree.Node, buffer, count int) []T {
	return abi.Slice[T](n.Buffers[buffer], count)
}
