package hostview

import (
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// importedView is a host view of an import of which there is no other object, in one allocation.
type importedView struct {
	Batch
	owner  tree.Owner
	source cstruct.Columns
	few    fewColumns
}

// Import makes a record batch of a C struct of memory of the CPU, as an import, a host view of it and the release of
// the import do, in one object. The batch has the schema s itself; tooMany is as for [Batch.Lenient].
//
// It takes ownership of *arr, even if it returns an error.
func Import(arr *abi.ArrowArray, s *arrow.Schema, tooMany func()) (arrow.RecordBatch, error) {
	var in cstruct.Input
	in.SetPlain(arr)
	in.CountsNulls = true
	if err := cstruct.CheckTop(&in); err != nil {
		return nil, err
	}
	plan, nodes, err := cstruct.CheckColumns(&in, s)
	if err != nil {
		tree.Adopt(in.Array).Release()
		return nil, err
	}
	v := new(importedView)
	v.owner.Adopt(in.Array)
	v.source = cstruct.Columns{Plan: plan, Root: v.owner.Imported(), Mem: &v.owner, ReplaceNulls: true}
	v.schema, v.rows, v.tooMany = s, v.source.Root.Length, tooMany
	switch {
	case nodes != nil:
		v.nodes = v.source.Made(nodes)
	case plan.AllFlat:
		v.flat = &v.source
	default:
		v.nodes = v.source.MakeNodes()
	}
	if n := s.NumFields(); n <= len(v.few.made) {
		v.made, v.columns = v.few.made[:n], v.few.columns[:n]
	} else {
		v.made, v.columns = make([]atomic.Bool, n), make([]arrow.Array, n)
	}
	if err := v.start(&v.owner); err != nil {
		return nil, err
	}
	return &v.Batch, nil
}
