package cdevice

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// HostView returns the batch as an arrow-go record batch over the same memory. It first waits for the
// batch's event; ctx ends the wait with an error.
//
// The CPU must be able to access the memory (CPU, pinned or managed memory), otherwise the error wraps
// device.ErrNotSupported. For a batch of [WrapRecordBatch], HostView returns the record batch that was
// wrapped.
//
// The result is owned by the caller. It keeps the memory alive until its release, and so does every
// column that is retained, except one of type null, which has no memory. It makes the array of a
// column when the column is first asked for, on any goroutine. arrow-go's rules for concurrent use
// apply: an array counts its nulls at the first call of NullN, without a lock. The contents are
// checked only as far as the sizes of the buffers require; [RecordBatch.ValidateFull] checks all of
// them.
func (b *RecordBatch) HostView(ctx context.Context) (arrow.RecordBatch, error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	if err := readyForHost(ctx, b.at()); err != nil {
		return nil, err
	}
	if b.host != nil {
		b.host.Retain()
		return b.host, nil
	}
	return newHostBatch(b.mem, b.schema, b.rows, b.nodes())
}

// HostView returns the array as an arrow-go array over the same memory; see
// [RecordBatch.HostView].
func (a *Array) HostView(ctx context.Context) (arrow.Array, error) {
	if err := a.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	if err := readyForHost(ctx, a.at()); err != nil {
		return nil, err
	}
	if a.host != nil {
		a.host.Retain()
		return a.host, nil
	}
	v := viewer{mem: new(hostMemory)}
	v.mem.start(a.mem)
	defer v.mem.drop()
	arr, err := v.array(&a.node)
	if err != nil {
		return nil, fielderr.Within("array", err)
	}
	return arr, nil
}

// viewer builds arrow-go's data over the memory of a tree of nodes. The small slices that
// arrow-go's data keeps are cut from one allocation.
type viewer struct {
	mem     *hostMemory
	sizes   []int64 // scratch
	buffers []*memory.Buffer
	// exact is positive inside types whose children's null counts arrow-go reads at once. It takes
	// an unknown count for a null.
	exact int
	// shared is true if other arrays use the memory, so that an array that arrow-go refuses must not end it.
	shared bool
}

// check returns an error if the buffers of the node or of one below it cannot have the sizes that their
// contents demand.
func (v *viewer) check(n *tree.Node) (err error) {
	if v.sizes, err = hostread.CheckSizes(v.sizes, n); err != nil {
		return err
	}
	for i := range n.Children {
		if err := v.check(&n.Children[i]); err != nil {
			return fielderr.Within(n.ChildName(i), err)
		}
	}
	return nil
}

func (v *viewer) array(n *tree.Node) (arr arrow.Array, err error) {
	data, err := v.data(n)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	defer hostread.RecoverArrow(&err, v.refused)
	return array.MakeFromData(data), nil
}

// refused ends the memory of an array that arrow-go refused, whose references cannot be dropped.
func (v *viewer) refused() {
	if !v.shared {
		v.mem.abandon()
	}
}

func (v *viewer) data(n *tree.Node) (data *array.Data, err error) {
	st := n.Storage()
	if v.sizes, err = hostread.Sizes(v.sizes[:0], n, st); err != nil {
		return nil, err
	}
	// arrow-go keeps an entry for a bitmap even if the type has none.
	shift := 1
	if n.Layout.Validity {
		shift = 0
	}
	buffers := v.takeBuffers(shift + len(v.sizes))
	for i, size := range v.sizes {
		addr := n.Buffers[i]
		if n.Length == 0 && addr != 0 {
			addr = bridge.Zeros // a producer need not provide the single offset of an empty array
		}
		if addr != 0 {
			buffers[shift+i] = v.mem.buffer(abi.Slice[byte](addr, int(size)))
		}
	}
	children, err := v.children(n)
	if err == nil {
		nulls := n.Nulls
		if v.exact > 0 {
			nulls = hostread.Nulls(n)
		}
		if n.Layout.Kind == layout.Dictionary {
			data = array.NewDataWithDictionary(n.Type, int(n.Length), buffers, int(nulls), int(n.Offset), children[0].(*array.Data))
		} else {
			data = array.NewData(n.Type, int(n.Length), buffers, children, int(nulls), int(n.Offset))
		}
	}
	// The data holds references of its own.
	for _, b := range buffers {
		if b != nil {
			b.Release()
		}
	}
	for _, c := range children {
		c.Release()
	}
	return data, err
}

// children returns the data of the children; on an error, of those before it.
func (v *viewer) children(n *tree.Node) ([]arrow.ArrayData, error) {
	if len(n.Children) == 0 {
		return nil, nil
	}
	if n.Layout.Kind == layout.RunEnds || n.Storage().ID() == arrow.MAP {
		v.exact++
		defer func() { v.exact-- }()
	}
	children := make([]arrow.ArrayData, 0, len(n.Children))
	for i := range n.Children {
		child, err := v.data(&n.Children[i])
		if err != nil {
			return children, fielderr.Within(n.ChildName(i), err)
		}
		children = append(children, child)
	}
	return children, nil
}

func (v *viewer) takeBuffers(n int) []*memory.Buffer {
	const atOnce = 16
	if len(v.buffers) < n {
		v.buffers = make([]*memory.Buffer, max(n, atOnce))
	}
	return tree.Take(&v.buffers, n)
}

// readyForHost waits for the event. It returns an error if the CPU cannot access the memory.
func readyForHost(ctx context.Context, at tree.Location) error {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cdevice: read: %w", err)
	}
	if !at.CPUAccessible() {
		return fmt.Errorf("cdevice: read: %s: %w", at.NotAccessible(), device.ErrNotSupported)
	}
	return at.Synchronize(ctx)
}
