package layout

import (
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// Plan is the arrays of a record batch of one schema, with all that depends only on types resolved
// once: an import of a batch then takes comparisons only. Plans are immutable.
type Plan struct {
	// Schema is a copy of the schema, which keeps alive what it points to.
	Schema arrow.Schema
	// Arrays are the arrays of a batch: the columns, and after them the arrays below. Siblings are
	// adjacent, and parents come before their children.
	Arrays []Array
	// Flat has an entry for each column: the number of its buffers if it has no children and its
	// first two buffers are a validity bitmap and one that must have data if there are elements.
	// For views, it is the number without data buffers. It is 0 for all other columns.
	Flat []uint8
	// AllFlat is true if each column has an entry in Flat.
	AllFlat bool
	// FitAlways is true if the sizes of the buffers of all columns follow from the structs alone, and all types are
	// those of arrow-go.
	FitAlways bool
	// Simple is true if all arrays are simple; see Layout.simple. Buffers and Pointers are the numbers
	// of their buffers, and of the children of all but dictionary arrays, the columns included.
	Simple            bool
	Buffers, Pointers int

	states     schema.States
	extensions []extension
}

// Array is one array of a plan.
type Array struct {
	Type   arrow.DataType
	Layout *Layout
	// First and Children are the index of the first child in Plan.Arrays, and the number of children;
	// the dictionary of a dictionary array is its only one.
	First, Children int32
	// ChildElements is how many elements of each child one element takes, at least.
	ChildElements int64
	// SecondBase and SecondBits are the least size of buffer 1 of a simple array, in bytes, and what
	// each element adds, in bits.
	SecondBase, SecondBits int64
	// Needed has bit i set if buffer i must have data if there are elements; see LeastSize.
	Needed uint8
	// Most is a number of elements, with those before the first, whose buffers fit in MaxBufferSize.
	// More elements may fit as well.
	Most int64
}

// FlatMost is at most the Most of each column that has an entry in Plan.Flat.
const FlatMost = MaxBufferSize >> 6

// newPlan makes the plan of a schema. It returns an error for the types for which CountNodes returns
// one, and within the same limits.
func newPlan(s *arrow.Schema) (p *Plan, err error) {
	defer RecoverType(&err)
	count := s.NumFields()
	if count > maxNodes {
		return nil, errTooLarge
	}
	p = &Plan{Schema: *s, Arrays: make([]Array, count), Flat: make([]uint8, count), FitAlways: true}
	for i := range count {
		if err := p.add(i, s.Field(i).Type, 1); err != nil {
			return nil, err
		}
		p.Flat[i] = p.Arrays[i].flat()
		p.FitAlways = p.FitAlways && p.Arrays[i].FitsAlways()
	}
	p.AllFlat = !slices.Contains(p.Flat, 0)
	p.count()
	return p, nil
}

// add sets array i to one of the type, and adds those below it.
func (p *Plan) add(i int, dt arrow.DataType, depth int) error {
	st, l := Of(dt)
	if l.Kind == Unknown {
		return UnknownType(dt)
	}
	p.watch(dt)
	a := Array{Type: dt, Layout: l, Most: math.MaxInt64}
	if l.simple() && l.Buffers > 1 {
		a.SecondBase = LeastSize(st, l, 1, 0)
		a.SecondBits = LeastSize(st, l, 1, 8) - a.SecondBase
	}
	for k := range l.Buffers {
		size := LeastSize(st, l, k, 1)
		a.Most = min(a.Most, MaxBufferSize/max(size, 1))
		if !(l.Validity && k == 0) && size > 0 {
			a.Needed |= 1 << k
		}
	}
	children := l.ChildCount(st)
	if children == 0 {
		p.Arrays[i] = a
		return nil
	}
	if depth >= MaxDepth {
		return ErrTooDeep
	}
	first := len(p.Arrays)
	if children > maxNodes-first {
		return errTooLarge
	}
	a.First, a.Children = int32(first), int32(children)
	if l.Kind != Dictionary {
		a.ChildElements, _ = ChildLength(st, 1)
	}
	p.Arrays[i] = a
	p.Arrays = append(p.Arrays, make([]Array, children)...)
	for k := range children {
		if err := p.add(first+k, ChildType(st, k), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// FitsAlways reports whether the sizes of the buffers follow from the struct alone, and the type is one of arrow-go.
func (a *Array) FitsAlways() bool {
	return (a.Layout.Kind == Fixed || a.Layout.Kind == Bits) && a.Type.ID() != arrow.EXTENSION
}

// flat returns the array's entry in Plan.Flat.
func (a *Array) flat() uint8 {
	const second = 1 << 1
	if a.Children == 0 && a.Layout.Validity && a.Needed == second && a.Most >= FlatMost {
		return uint8(a.Layout.Buffers)
	}
	return 0
}

// Below returns the children of an array of the plan.
func (p *Plan) Below(a *Array) []Array { return p.Arrays[a.First:][:a.Children] }
