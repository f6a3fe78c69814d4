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
		listed, trees := len(live.Objects()), bridge.Trees()
		r := new(releases)
		m := tree.Own(r)
		export := func(out *abi.ArrowArray) error {
			root := tree.Node{Type: arrow.PrimitiveTypes.Int8, Layout: &layout.All[layout.Fixed], Buffers: []uintptr{0, bridge.Zeros}}
			return Export("test", &Tree{Mem: m, Root: root}, out, nil, nil)
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
		assert.Equal(t, trees, bridge.Trees())
	}
}
