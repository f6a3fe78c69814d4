package cstruct

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// An import checks a record batch twice at most. First come the checks of this file: comparisons only, guided by a plan,
// which store nothing and build no error. If they fail, Parser repeats them, and names the field that is wrong; its
// result is final. FuzzPlansAcceptWhatTheParserAccepts holds the two together.

// CheckColumns checks the struct of a record batch, and returns the plan of its schema, of which
// Columns makes nodes. If only Parser accepts the struct, it also returns the nodes that Parser made.
// It does not change the struct.
func CheckColumns(in *Input, s *arrow.Schema) (plan *layout.Plan, nodes []tree.Node, err error) {
	if s == nil {
		return nil, nil, fielderr.Invalid(fielderr.OpImport, "schema", "nil", "a schema")
	}
	if err := checkDevice(in.ID, in.Event); err != nil {
		return nil, nil, err
	}
	defer recoverType(&err)
	plan, err = layout.PlanOf(s)
	if err == nil && acceptsBatch(plan, in) {
		return plan, nil, nil
	}
	nodes, named := parseColumns(in, s)
	if named != nil {
		return nil, nil, named
	}
	return plan, nodes, err
}

// acceptsBatch reports whether a struct is a record batch of the plan's schema.
func acceptsBatch(p *layout.Plan, in *Input) bool {
	root := in.Array
	if in.ID.Type == device.CPU && in.Event != 0 {
		return false // see checkEvent
	}
	return checkBatchRoot(in, len(p.Flat)) == nil && acceptsColumns(p, root)
}

// acceptsColumns reports whether the columns of a batch are arrays of the plan.
func acceptsColumns(p *layout.Plan, root *abi.ArrowArray) bool {
	pointers := abi.Slice[uintptr](root.Children, len(p.Flat))
	end := root.Offset + root.Length
	for i, buffers := range p.Flat {
		if !acceptsFlat(int64(buffers), pointers[i], end) && !acceptsChild(p, &p.Arrays[i], pointers[i], end) {
			return false
		}
	}
	return true
}

// acceptsFlat reports whether the struct at an address is an array of at least the given length
// with so many buffers, of which the first is a validity bitmap, the second must have data if
// there are elements, and the others need not have any. With 0 buffers it refuses all.
func acceptsFlat(buffers int64, addr uintptr, least int64) bool {
	if buffers == 0 || !isPointer(addr) {
		return false
	}
	a := abi.At[abi.ArrowArray](addr)
	if a.Release == 0 || a.NBuffers != buffers || a.NChildren != 0 || a.Dictionary != 0 ||
		!countsFit(a) || a.Length < least || a.Offset+a.Length > layout.FlatMost || !isPointer(a.Buffers) {
		return false
	}
	first := abi.At[[2]uintptr](a.Buffers)
	return (first[0] != 0 || a.NullCount <= 0) && (first[1] != 0 || a.Length == 0)
}

// countsFit reports whether length and offset are not negative, their sum is an int64, and the null
// count is UnknownNulls or at most the length.
func countsFit(a *abi.ArrowArray) bool {
	// The sum of two numbers that are not negative is negative if it overflows.
	return a.Length|a.Offset|(a.Length+a.Offset) >= 0 &&
		uint64(a.NullCount-tree.UnknownNulls) <= uint64(a.Length-tree.UnknownNulls)
}

// acceptsChild reports whether the struct at an address is an array of the plan, of at least the
// given length.
func acceptsChild(p *layout.Plan, f *layout.Array, addr uintptr, least int64) bool {
	if !isPointer(addr) {
		return false
	}
	a := abi.At[abi.ArrowArray](addr)
	return a.Release != 0 && countsFit(a) && a.Length >= least &&
		acceptsBuffers(f, a) && acceptsChildren(p, f, a)
}

func acceptsBuffers(f *layout.Array, a *abi.ArrowArray) bool {
	if !buffersAllowed(a.NBuffers, f.Layout) || a.NBuffers > 0 && !isPointer(a.Buffers) {
		return false
	}
	buffers := abi.Slice[uintptr](a.Buffers, int(a.NBuffers))
	if f.Layout.Validity && buffers[0] == 0 && a.NullCount > 0 {
		return false
	}
	if a.Length > 0 {
		if a.Offset+a.Length > f.Most {
			return false
		}
		for i := range f.Layout.Buffers {
			if buffers[i] == 0 && f.Needed>>i&1 != 0 {
				return false
			}
		}
	}
	return f.Layout.Kind != layout.View || checkViewSizes(buffers) == nil
}

func acceptsChildren(p *layout.Plan, f *layout.Array, a *abi.ArrowArray) bool {
	children := p.Below(f)
	if f.Layout.Kind == layout.Dictionary {
		return a.NChildren == 0 && acceptsChild(p, &children[0], a.Dictionary, 0)
	}
	if a.Dictionary != 0 || a.NChildren != int64(len(children)) {
		return false
	}
	if len(children) == 0 {
		return true
	}
	end := a.Offset + a.Length
	each := f.ChildElements
	if each < 0 || each > 1 && end > math.MaxInt64/each || !isPointer(a.Children) {
		return false
	}
	pointers := abi.Slice[uintptr](a.Children, len(children))
	for i := range children {
		if !acceptsChild(p, &children[i], pointers[i], end*each) {
			return false
		}
	}
	return f.Layout.Kind != layout.RunEnds || acceptsRuns(a, pointers)
}

// acceptsRuns reports whether the children of a run-end encoded array fit it; see checkRuns.
func acceptsRuns(a *abi.ArrowArray, children []uintptr) bool {
	ends, values := abi.At[abi.ArrowArray](children[0]), abi.At[abi.ArrowArray](children[1])
	return ends.NullCount <= 0 && (a.Length == 0 || ends.Length > 0) && values.Length >= ends.Length
}
