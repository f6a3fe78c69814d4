package copyplan

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ForCuDF returns the tree as libcudf imports it without loss, with a reference to its owner. The types of
// its nodes are those that libcudf is given; changed reports that one differs. dropZones accepts timestamps with a
// time zone.
func ForCuDF(ctx context.Context, t tree.Tree, dropZones bool) (out tree.Tree, changed bool, err error) {
	if err := checkCUDA(fielderr.OpCuDF, t); err != nil {
		return tree.Tree{}, false, err
	}
	types, changed, err := cuDFTypes{dropZones}.of(t)
	if err != nil {
		return tree.Tree{}, false, err
	}
	bad, err := unsanitized(ctx, t)
	if err != nil {
		return tree.Tree{}, false, err
	}
	fits := true
	for i := range t.Nodes {
		fits = fits && !bad[i] && t.Mem.Block.AsMade(&t.Nodes[i]) && !hasKind(&t.Nodes[i], arrow.FIXED_SIZE_LIST)
	}
	if fits {
		t.Mem.Retain()
	} else if t, err = rebuilt(ctx, t, types, bad, true); err != nil {
		return tree.Tree{}, false, err
	}
	if changed {
		t.Nodes = relabelAll(t.Nodes, types)
	}
	counted, err := CountNulls(ctx, t, true)
	if err != nil {
		t.Mem.Release()
		return tree.Tree{}, false, err
	}
	t.Nodes = counted
	return t, changed, nil
}

// FromCuDF returns the tree, which libcudf exported, as arrays of the types, with a reference to its owner.
func FromCuDF(ctx context.Context, t tree.Tree, types []arrow.DataType) (tree.Tree, error) {
	if err := checkCUDA(fielderr.OpFromCuDF, t); err != nil {
		return tree.Tree{}, err
	}
	lists := false // lists that become lists of a fixed size
	for i := range t.Nodes {
		fixed, err := fromCuDFType(&t.Nodes[i], types[i])
		if err != nil {
			return tree.Tree{}, fielderr.Within(t.Name(i), err)
		}
		lists = lists || fixed
	}
	bad := make([]bool, len(t.Nodes))
	var err error
	if lists {
		if bad, err = uneven(ctx, t, types); err != nil {
			return tree.Tree{}, err
		}
	}
	if !slices.Contains(bad, true) {
		t.Mem.Retain()
	} else if t, err = rebuilt(ctx, t, types, bad, false); err != nil {
		return tree.Tree{}, err
	}
	t.Nodes = relabelAll(t.Nodes, types)
	return t, nil
}

// checkCUDA returns an error unless libcudf can use the memory.
func checkCUDA(op string, t tree.Tree) error {
	switch t.At.ID.Type {
	case device.CUDA, device.CUDAHost, device.CUDAManaged:
		return nil
	}
	return fielderr.New(op, "device_type", t.At.ID.Type, "memory of CUDA", device.ErrNotSupported)
}

// rebuilt returns a copy of the tree on its device. The columns that are marked take the way through the CPU,
// where they become what gatherer makes of their types; lists of a fixed size of the others become lists, if
// asLists is set.
func rebuilt(ctx context.Context, t tree.Tree, types []arrow.DataType, marked []bool, asLists bool) (tree.Tree, error) {
	dev, err := t.At.Device()
	if err != nil {
		return tree.Tree{}, err
	}
	gathered, err := gatherColumns(ctx, columnsOf(t, marked, true), only(types, marked, true))
	if err != nil {
		return tree.Tree{}, err
	}
	src, err := openSource(ctx, columnsOf(t, marked, false), nil)
	if err != nil {
		return tree.Tree{}, err
	}
	defer src.Close()
	src.asLists = asLists
	taken, err := src.Plan(false)
	if err != nil {
		return tree.Tree{}, err
	}
	plans := make([]Plan, len(t.Nodes))
	for i := range plans {
		from := &taken
		if marked[i] {
			from = &gathered
		}
		plans[i], *from = (*from)[0], (*from)[1:]
	}
	made, err := copyToDevice(ctx, src, plans, dev, nil)
	made.Name = t.Name
	return made, err
}

// columnsOf returns the columns of the tree whose mark is as wanted. It borrows the tree's reference to the
// owner.
func columnsOf(t tree.Tree, marked []bool, want bool) tree.Tree {
	var index []int
	for i, m := range marked {
		if m == want {
			index = append(index, i)
		}
	}
	name := t.Name
	t.Nodes = only(t.Nodes, marked, want)
	t.Name = func(i int) string { return name(index[i]) }
	return t
}

// only returns the elements of the list whose mark is as wanted.
func only[T any](list []T, marked []bool, want bool) []T {
	var out []T
	for i := range list {
		if marked[i] == want {
			out = append(out, list[i])
		}
	}
	return out
}
