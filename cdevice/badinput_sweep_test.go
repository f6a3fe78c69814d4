package cdevice_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// mutation is one wrong field of one struct.
type mutation struct {
	name string
	set  func(n *foreignNode)
	// refused reports that no valid array has this corruption; if it is false, an import may find
	// nothing wrong.
	refused bool
}

// mutationsOf are all that the sweep does to n, one at a time.
func mutationsOf(n *foreignNode) []mutation {
	var all []mutation
	add := func(refused bool, set func(n *foreignNode), name string, args ...any) {
		all = append(all, mutation{fmt.Sprintf(name, args...), set, refused})
	}
	g := n.good
	for _, v := range []int64{g.NBuffers - 1, g.NBuffers + 1, 0, 1 << 62, math.MinInt64} {
		if v != g.NBuffers {
			views := isView(n.typ) && v >= 3 && v < g.NBuffers
			bitmap := n.typ.ID() == arrow.NULL && v == 1 // polars has an entry for one
			add(!views && !bitmap, func(n *foreignNode) { n.NBuffers = v }, "n_buffers = %d", v)
		}
	}
	for _, v := range []int64{g.NChildren - 1, g.NChildren + 1, 1 << 62, math.MinInt64} {
		add(true, func(n *foreignNode) { n.NChildren = v }, "n_children = %d", v)
	}
	add(g.NBuffers > 0, func(n *foreignNode) { n.Buffers = 0 }, "buffers = NULL")
	add(g.NChildren > 0, func(n *foreignNode) { n.Children = 0 }, "children = NULL")
	add(true, func(n *foreignNode) { n.Length = -1 }, "length = -1")
	add(false, func(n *foreignNode) { n.Length = math.MaxInt64 }, "length = most")
	add(true, func(n *foreignNode) { n.Offset = -1 }, "offset = -1")
	add(g.Length > 0, func(n *foreignNode) { n.Offset = math.MaxInt64 }, "offset = most")
	add(true, func(n *foreignNode) { n.NullCount = -2 }, "null_count = -2")
	add(true, func(n *foreignNode) { n.NullCount = n.Length + 1 }, "null_count = length+1")
	add(true, func(n *foreignNode) { n.Release = 0 }, "release = NULL")
	for i := range n.children {
		add(true, func(n *foreignNode) { n.entries[i] = 0 }, "children[%d] = NULL", i)
	}
	if n.dict != nil {
		add(true, func(n *foreignNode) { n.Dictionary = 0 }, "dictionary = NULL")
	}
	for i := range n.buffers {
		if i > 0 || !hasBitmap(n.typ) {
			add(false, func(n *foreignNode) { n.setNull(i) }, "buffers[%d] = NULL", i)
		}
	}
	return all
}

// Every field of every struct of every type, wrong in every way.
func TestEveryFieldCorrupted(t *testing.T) {
	body := func(t *testing.T, f *foreignArray) {
		f.each(func(n *foreignNode) {
			for _, m := range mutationsOf(n) {
				for _, full := range []bool{false, true} {
					f.restore()
					m.set(n)
					what := fmt.Sprintf("array%s.%s, full validation %t", n.path, m.name, full)
					err := importAndUse(t, f, what, full)
					if m.refused && err == nil {
						t.Errorf("%s: accepted", what)
					}
				}
			}
		})
	}
	eachForeign(t, []cases.Variant{cases.Nulls, cases.Sliced, cases.Empty}, asArray, body)
	eachForeign(t, []cases.Variant{cases.Nulls}, asBatch, body)
}

// Contents at random are accepted in memory of a GPU if they are accepted in memory of the host, and
// refused with the same error otherwise.
func TestRandomContentsOnAGPU(t *testing.T) {
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	seed := uint64(0)
	for _, w := range []way{asArray, asBatch} {
		eachForeign(t, []cases.Variant{cases.Nulls, cases.Sliced}, w, func(t *testing.T, f *foreignArray) {
			seed++
			nodes := f.guided()
			validate := func(opts ...cdevice.ImportOption) string {
				got, err := validated(f.importWith(f.newSchema(t), opts...))
				if err != nil {
					return err.Error()
				}
				got.Release()
				return "accepted"
			}
			for round := range uint64(20) {
				begin := func() bool {
					r := rand.New(rand.NewPCG(seed, round))
					f.restore()
					for range r.IntN(3) {
						if len(nodes) > 0 {
							scribble(r, nodes[r.IntN(len(nodes))])
						}
					}
					return f.tame()
				}
				if !begin() {
					continue
				}
				want := validate()
				begin()
				free := f.upload(t, gpu)
				assert.Equal(t, want, validate(cdevice.WithDevice(gpu)), "seed %d, round %d", seed, round)
				free()
			}
		})
	}
}

// guided are the nodes with contents that lead a reader somewhere.
func (f *foreignArray) guided() []*foreignNode {
	var nodes []*foreignNode
	f.each(func(n *foreignNode) {
		if len(n.guides()) > 0 {
			nodes = append(nodes, n)
		}
	})
	return nodes
}

// guides are the buffers of n that a reader is led by: all but plain values.
func (n *foreignNode) guides() []int {
	var all []int
	for i, b := range n.buffers {
		plain := i == 1 && hasBitmap(n.typ) && isFixedWidth(n.typ) && !n.leads
		if len(b) > slack && !plain {
			all = append(all, i)
		}
	}
	return all
}

func isFixedWidth(dt arrow.DataType) bool {
	_, ok := dt.(arrow.FixedWidthDataType)
	return ok && dt.ID() != arrow.DICTIONARY
}

// tame reports that no size of text or view data reaches memory that may be mapped: the C data
// interface has no buffer sizes, so a reader would trust it. It follows the structs as their types
// do.
func (f *foreignArray) tame() bool {
	mine := map[uintptr]bool{}
	f.each(func(n *foreignNode) {
		mine[addressOf(n.ArrowArray)] = true
		mine[sliceAddress(n.pointers)] = true
		mine[sliceAddress(n.entries)] = true
	})
	return f.tameNode(mine, f.root.typ, addressOf(f.root.ArrowArray), math.MaxInt64)
}

// tameNode checks one struct; at most so many of its elements are imported.
func (f *foreignArray) tameNode(mine map[uintptr]bool, dt arrow.DataType, addr uintptr, most int64) bool {
	dt = storageOf(dt)
	if !mine[addr] {
		return true // NULL or misaligned: refused
	}
	a := abi.At[abi.ArrowArray](addr)
	end := uint64(a.Offset) + uint64(min(a.Length, most))
	if end <= slack/32 && mine[a.Buffers] && !tameBuffers(dt, abi.Slice[uintptr](a.Buffers, room), a.NBuffers, uintptr(end)) {
		return false
	}
	if d, ok := dt.(*arrow.DictionaryType); ok {
		return f.tameNode(mine, d.ValueType, a.Dictionary, math.MaxInt64)
	}
	most = math.MaxInt64
	if f.schema != nil && a == f.root.ArrowArray {
		most = max(a.Offset+a.Length, 0) // longer columns are cut
	}
	for i, field := range fieldsOf(dt) {
		if mine[a.Children] && !f.tameNode(mine, field.Type, abi.Slice[uintptr](a.Children, room)[i], most) {
			return false
		}
	}
	return true
}

func tameBuffers(dt arrow.DataType, buffers []uintptr, count int64, end uintptr) bool {
	var sizes []int64
	switch id := dt.ID(); {
	case buffers[1] == 0:
	case id == arrow.STRING || id == arrow.BINARY:
		sizes = []int64{int64(*abi.At[int32](buffers[1] + end*4))}
	case id == arrow.LARGE_STRING || id == arrow.LARGE_BINARY:
		sizes = []int64{*abi.At[int64](buffers[1] + end*8)}
	case isView(dt) && count >= 3 && count <= room:
		sizes = abi.Slice[int64](buffers[count-1], int(count-3))
	}
	for _, size := range sizes {
		if size > slack && size <= 1<<47 {
			return false
		}
	}
	return true
}
