package tree

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// The null count of a slice is known only if it follows from that of the whole.
func TestSliceOfANode(t *testing.T) {
	fixed, null := &layout.All[layout.Fixed], &layout.All[layout.Null]
	for _, row := range []struct {
		node       Node
		i, j       int64
		want       [3]int64 // length, offset, nulls
		knownNulls int64    // of the node without a bitmap
	}{
		{Node{Layout: fixed, Length: 5, Offset: 2, Nulls: 3}, 1, 3, [3]int64{2, 3, UnknownNulls}, 0},
		{Node{Layout: fixed, Length: 5, Nulls: 0}, 1, 3, [3]int64{2, 1, 0}, 0},
		{Node{Layout: fixed, Length: 5, Nulls: 3}, 0, 5, [3]int64{5, 0, 3}, 0},
		{Node{Layout: fixed, Length: 5, Offset: 2, Nulls: 3}, 4, 4, [3]int64{0, 0, UnknownNulls}, 0},
		{Node{Layout: null, Length: 5, Nulls: 5}, 1, 3, [3]int64{2, 1, 2}, 5},
	} {
		got := row.node.Slice(row.i, row.j)
		assert.Equal(t, row.want, [3]int64{got.Length, got.Offset, got.Nulls})
		assert.Equal(t, row.knownNulls, KnownNulls(row.node.Layout, row.node.Length, row.node.Nulls, 0))
	}
	assert.EqualValues(t, 3, KnownNulls(fixed, 5, 3, 8))
}

// The paths of errors, and what an export needs for the nodes below one.
func TestNodesBelow(t *testing.T) {
	leaf := Node{Type: arrow.PrimitiveTypes.Int8, Layout: &layout.All[layout.Fixed]}
	dictionary := Node{Layout: &layout.All[layout.Dictionary], Children: []Node{leaf}}
	root := Node{Layout: &layout.All[layout.Struct], Children: []Node{leaf, dictionary}}
	assert.Equal(t, "children[1]", root.ChildName(1))
	assert.Equal(t, "dictionary", dictionary.ChildName(0))
	var size Size
	size.AddChildren(&root)
	assert.Equal(t, Size{Structs: 3, Pointers: 2}, size)
	assert.Equal(t, arrow.PrimitiveTypes.Int8, leaf.Storage())
}

// working is a device whose work is done when the test says so.
type working struct {
	device.Device
	pending []func()
	waiting int64
}

func (w *working) AfterWork(f func())   { w.pending = append(w.pending, f) }
func (w *working) CountWaiting(n int64) { w.waiting += n }

func (w *working) finish() {
	for _, f := range w.pending {
		f()
	}
	w.pending = nil
}

// Memory that work may use ends once, after that work, and is counted meanwhile; exported memory of a device is such
// memory, and that of the CPU is not.
func TestMemoryEndsAfterItsUsers(t *testing.T) {
	dev, other := &working{Device: device.CPUDevice()}, &working{Device: device.CPUDevice()}
	for name, use := range map[string]func(*Owner){
		"used":     func(m *Owner) { m.UsedOn(dev, nil, nil) },
		"exported": func(m *Owner) { m.Home = dev; m.MarkExported(); m.MarkExported() },
	} {
		r := new(releases)
		m := Own(r)
		m.Size = 7
		use(m)
		m.UsedOn(other, nil, nil)
		m.Release()
		assert.EqualValues(t, 7, dev.waiting, name)
		dev.finish()
		assert.Zero(t, r.n, name)
		other.finish()
		assert.Equal(t, 1, r.n, name)
		assert.Zero(t, dev.waiting, name)
	}
	r := new(releases)
	m := Own(r)
	m.MarkExported()
	m.Release()
	assert.Equal(t, 1, r.n)
	ended := false
	AfterWork(dev, 5, func() { ended = true })
	assert.EqualValues(t, 5, dev.waiting)
	assert.False(t, ended)
	dev.finish()
	assert.True(t, ended)
	assert.Zero(t, dev.waiting)
}
