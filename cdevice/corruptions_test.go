package cdevice_test

import (
	"math"
	"math/rand/v2"
)

// corruption corrupts one value of a valid tree: of the node that a row names, or of one below it.
type corruption = func(f *foreignArray, n *foreignNode)

// both is two corruptions of one node.
func both(first, second corruption) corruption {
	return func(f *foreignArray, n *foreignNode) { first(f, n); second(f, n) }
}

// inChild spoils child i.
func inChild(i int, set corruption) corruption {
	return func(f *foreignArray, n *foreignNode) { set(f, n.children[i]) }
}

// inChildOf gives a corruption of child i its parent too.
func inChildOf(i int, set func(parent, n *foreignNode)) corruption {
	return func(_ *foreignArray, n *foreignNode) { set(n, n.children[i]) }
}

// inDict spoils the dictionary.
func inDict(set corruption) corruption {
	return func(f *foreignArray, n *foreignNode) { set(f, n.dict) }
}

// length replaces ArrowArray.length.
func length(v int64) corruption { return func(_ *foreignArray, n *foreignNode) { n.Length = v } }

// offset replaces ArrowArray.offset.
func offset(v int64) corruption { return func(_ *foreignArray, n *foreignNode) { n.Offset = v } }

// nulls replaces ArrowArray.null_count.
func nulls(v int64) corruption { return func(_ *foreignArray, n *foreignNode) { n.NullCount = v } }

// nBuffers replaces ArrowArray.n_buffers.
func nBuffers(v int64) corruption {
	return func(_ *foreignArray, n *foreignNode) { n.NBuffers = v }
}

// nChildren replaces ArrowArray.n_children.
func nChildren(v int64) corruption {
	return func(_ *foreignArray, n *foreignNode) { n.NChildren = v }
}

// nullBuffer makes a buffer NULL.
func nullBuffer(i int) corruption { return func(_ *foreignArray, n *foreignNode) { n.setNull(i) } }

// put overwrites value i of a buffer.
func put[T any](buffer, i int, v T) corruption {
	return func(_ *foreignArray, n *foreignNode) { valuesAt[T](n, buffer)[i] = v }
}

// scribble overwrites an element of a guide of n.
func scribble(r *rand.Rand, n *foreignNode) {
	guides := n.guides()
	b := n.buffers[guides[r.IntN(len(guides))]]
	numbers := []int64{-1, 0, 1, 2, 3, 4, 5, 6, 7, 9, 20, 127, 128, -128, math.MaxInt16, math.MinInt16, math.MaxInt32, math.MinInt32, 1 << 40, math.MaxInt64, math.MinInt64, r.Int64()}
	write(b, r.IntN(len(b)-slack), 1<<r.IntN(4), numbers[r.IntN(len(numbers))])
}

// write stores the low bytes of v, width of them, at the element that byte i is in.
func write(b []byte, i, width int, v int64) {
	i -= i % width
	for k := range width {
		b[i+k] = byte(v >> (8 * k))
	}
}
