package cstruct

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// The plan of a schema accepts the structs that the parser accepts, and makes the same nodes of them.
func TestPlansAcceptWhatTheParserAccepts(t *testing.T) {
	accepted := acceptedOf(t, rand.New(rand.NewPCG(1, 2)), 60_000, 60, compareStructs)
	for _, dt := range types {
		assert.GreaterOrEqual(t, accepted[dt.String()], 5, "%s", dt)
	}
}

func FuzzPlansAcceptWhatTheParserAccepts(f *testing.F) {
	fuzz(f, compareStructs)
}

// compareStructs makes and changes the struct of a record batch, and compares what both paths say of it. It returns the
// type of its first column, and whether they accept the struct.
func compareStructs(t *testing.T, c choices) (name string, accepted bool) {
	t.Helper()
	m := structMaker{choices: c}
	columns := []arrow.DataType{m.dataType(0), m.dataType(2)}[:1+m.below(2)]
	s := arrow.NewSchema([]arrow.Field{{Name: "a", Type: columns[0]}, {Name: "b", Type: columns[len(columns)-1]}}[:len(columns)], nil)
	plan, err := layout.PlanOf(s)
	require.NoError(t, err)
	root := m.batch(columns...)
	defer runtime.KeepAlive(&m)
	for range m.below(4) {
		m.change()
	}
	var in Input
	event := uintptr(8 * m.below(2))
	if m.below(2) == 1 {
		in.SetDevice(&abi.ArrowDeviceArray{Array: *root, DeviceType: []int32{1, 2}[m.below(2)], SyncEvent: event})
	} else {
		in.SetPlain(root)
	}
	nodes, err := parseColumns(&in, s)
	accepted = acceptsBatch(plan, &in)
	if accepted {
		if assert.NoError(t, err, "the plan accepts the struct") {
			got := (&Columns{Plan: plan, Root: root}).MakeNodes()
			assert.True(t, sameNodes(nodes, got), "the parser makes %v, the plan %v", nodes, got)
		}
	} else if err == nil && !(in.Event != 0 && in.ID.Type == device.CPU) && !m.large() {
		assert.Fail(t, "the parser accepts the struct, and the plan does not")
	}
	_, made, checked := CheckColumns(&in, s)
	assert.Equal(t, err, checked)
	assert.Equal(t, accepted || err != nil, made == nil)
	compareRoots(t, root, s, nodes, err)
	return columns[0].String(), accepted
}

// compareRoots compares the columns of a batch with the children of the same struct as an array.
func compareRoots(t *testing.T, root *abi.ArrowArray, s *arrow.Schema, columns []tree.Node, bad error) {
	t.Helper()
	var in Input
	in.SetPlain(root)
	array, err := ImportArray(&in, arrow.StructOf(s.Fields()...))
	if bad != nil || root.Offset != 0 {
		return
	}
	if assert.NoError(t, err, "the struct is a record batch") {
		for i := range columns {
			array[0].Children[i] = array[0].Children[i].Slice(0, root.Length)
		}
		assert.True(t, sameNodes(columns, array[0].Children))
	}
}

// large reports whether an array has so many elements that the size of a buffer is only estimated by a plan.
func (m *structMaker) large() bool {
	return slices.ContainsFunc(m.all, func(a *abi.ArrowArray) bool { return a.Offset+a.Length > layout.FlatMost>>8 })
}

func sameNodes(a, b []tree.Node) bool {
	return slices.EqualFunc(a, b, func(m, n tree.Node) bool {
		return layout.Identical(m.Type, n.Type) && m.Layout == n.Layout && m.Length == n.Length && m.Offset == n.Offset &&
			m.Nulls == n.Nulls && slices.Equal(m.Buffers, n.Buffers) && sameNodes(m.Children, n.Children)
	})
}
