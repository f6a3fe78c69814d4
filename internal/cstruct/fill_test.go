package cstruct

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

type releases struct{ n int }

func (r *releases) Release() { r.n++ }

// While tracing is on, an exported tree is listed until its release, and keeps the memory alive as
// others do; without memory for its structs there is none.
func TestTracedExport(t *testing.T) {
	for _, traced := range []bool{false, true} {
		before := live.Trace(traced)
		defer live.Trace(before)
		listed, trees := len(live.Objects()), bridge.Exports()
		r := new(releases)
		m := tree.Own(r)
		export := func(out *abi.ArrowArray) error {
			root := tree.Node{Type: arrow.PrimitiveTypes.Int8, Layout: &layout.All[layout.Fixed], Buffers: []uintptr{0, bridge.Zeros}}
			exported := &Tree{Mem: m.Retain(), Root: root}
			defer exported.Drop()
			return Export("test", exported, out, nil, nil)
		}
		var out abi.ArrowArray
		restore := bridge.LimitBlocks(0)
		assert.ErrorIs(t, export(&out), ErrNoMemory)
		restore()
		assert.Zero(t, out)
		assert.Len(t, live.Objects(), listed)

		require.NoError(t, export(&out))
		if traced {
			assert.Len(t, live.Objects(), listed+1)
		}
		m.Release()
		assert.Zero(t, r.n)
		bridge.CallArrayRelease(&out)
		assert.Equal(t, 1, r.n)
		assert.Len(t, live.Objects(), listed)
		assert.Equal(t, trees, bridge.Exports())
	}
}

// A consumer in C that releases the root releases all below it, but for what it has moved out, which keeps the memory.
func TestReleaseOfTheRootReleasesItsChildren(t *testing.T) {
	int8s := tree.Node{Type: arrow.PrimitiveTypes.Int8, Layout: &layout.All[layout.Fixed], Buffers: []uintptr{0, bridge.Zeros}}
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int8}
	indices := int8s
	indices.Type, indices.Layout, indices.Children = dictionary, &layout.All[layout.Dictionary], []tree.Node{int8s}
	root := tree.Node{Layout: &layout.All[layout.Struct], Buffers: []uintptr{0}, Children: []tree.Node{int8s, int8s, indices}}
	root.Type = arrow.StructOf(arrow.Field{Name: "a", Type: int8s.Type}, arrow.Field{Name: "b", Type: int8s.Type}, arrow.Field{Name: "c", Type: dictionary})

	trees, r := bridge.Exports(), new(releases)
	m := tree.Own(r)
	var out abi.ArrowArray
	require.NoError(t, Export("test", &Tree{Mem: m.Retain(), Root: root}, &out, nil, nil))
	m.Release()
	var below []*abi.ArrowArray
	for _, p := range abi.Slice[uintptr](out.Children, 3) {
		below = append(below, abi.At[abi.ArrowArray](p))
	}
	below = append(below, abi.At[abi.ArrowArray](below[2].Dictionary))
	moved := *below[1]
	below[1].Release = 0
	require.NoError(t, cpeer.ReleaseOnThread(&out))
	assert.Zero(t, out.Release)
	for i, s := range below {
		assert.Zero(t, s.Release, "%d", i)
	}
	assert.Zero(t, r.n)
	require.NoError(t, cpeer.ReleaseOnThread(&moved))
	assert.Equal(t, 1, r.n)
	assert.Equal(t, trees, bridge.Exports())
}
