package cdevice

import (
	"context"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ForCuDF returns the batch as libcudf (cuDF, pylibcudf) imports it without loss: with exact
// null counts, since libcudf takes an unknown one for none; without offsets; with bitmaps that
// are aligned and padded with zeros, since it reads them in whole words; and only with types,
// index types and lengths that it has. A batch that is not laid out like this is copied on its
// device; null counts that are not known are counted, which waits for the batch's event. ctx ends
// the wait.
//
// What does not fit is an error that names the column and wraps arrow.ErrNotImplemented. The
// memory must be CUDA's (device, managed or pinned), otherwise the error wraps
// device.ErrNotSupported. The result is owned by the caller.
func (b *RecordBatch) ForCuDF(ctx context.Context) (*RecordBatch, error) {
	if err := fielderr.CheckContext(fielderr.OpCuDF, ctx); err != nil {
		return nil, err
	}
	if err := b.hold(fielderr.OpCuDF); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	t, err := fitCuDF(ctx, b.tree())
	if err != nil {
		return nil, err
	}
	fitted := newRecordBatch(t.Mem, t.At, b.schema, b.rows, t.Nodes)
	fitted.metadata = b.metadata
	return fitted, nil
}

// ForCuDF returns the array as libcudf imports it; see [RecordBatch.ForCuDF].
func (a *Array) ForCuDF(ctx context.Context) (*Array, error) {
	if err := fielderr.CheckContext(fielderr.OpCuDF, ctx); err != nil {
		return nil, err
	}
	if err := a.hold(fielderr.OpCuDF); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	t, err := fitCuDF(ctx, a.tree())
	if err != nil {
		return nil, err
	}
	return newArray(t.Mem, t.At, a.field, t.Nodes[0]), nil
}

// fitCuDF returns the tree as libcudf wants it, with a reference to its owner.
func fitCuDF(ctx context.Context, t tree.Tree) (tree.Tree, error) {
	switch t.At.ID.Type {
	case device.CUDA, device.CUDAHost, device.CUDAManaged:
	default:
		return tree.Tree{}, fielderr.New(fielderr.OpCuDF, "device_type", t.At.ID.Type, "memory of CUDA", device.ErrNotSupported)
	}
	fits := true
	for i := range t.Nodes {
		if err := cuDFType(&t.Nodes[i]); err != nil {
			return tree.Tree{}, fielderr.Within(t.Name(i), err)
		}
		fits = fits && t.Mem.Block.AsMade(&t.Nodes[i])
	}
	if fits {
		t.Mem.Retain()
	} else {
		dev, err := t.At.Device()
		if err != nil {
			return tree.Tree{}, err
		}
		if t, err = copyTo(ctx, t, dev, nil); err != nil {
			return tree.Tree{}, err
		}
	}
	counted, err := countNulls(ctx, t, true)
	if err != nil {
		t.Mem.Release()
		return tree.Tree{}, err
	}
	t.Nodes = counted
	return t, nil
}

// cuDFType returns an error for what libcudf has no column for.
func cuDFType(n *tree.Node) error {
	if n.Length > math.MaxInt32 {
		return fielderr.New(fielderr.OpCuDF, "length", n.Length, fmt.Sprintf("at most %d (cuDF)", math.MaxInt32), arrow.ErrNotImplemented)
	}
	dt := n.Type
	switch dt.ID() {
	case arrow.BOOL, arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.UINT8, arrow.UINT16, arrow.UINT32, arrow.UINT64,
		arrow.FLOAT32, arrow.FLOAT64, arrow.DATE32, arrow.TIMESTAMP, arrow.DURATION, arrow.DECIMAL32, arrow.DECIMAL64, arrow.DECIMAL128,
		arrow.STRING, arrow.LARGE_STRING, arrow.LIST, arrow.STRUCT:
	case arrow.DICTIONARY:
		if index := dt.(*arrow.DictionaryType).IndexType; !arrow.IsSignedInteger(index.ID()) {
			return fielderr.New(fielderr.OpCuDF, "type", dt, "signed dictionary indices (cuDF)", arrow.ErrNotImplemented)
		}
	default:
		return fielderr.New(fielderr.OpCuDF, "type", dt, "a type that cuDF has", arrow.ErrNotImplemented)
	}
	for i := range n.Children {
		if err := cuDFType(&n.Children[i]); err != nil {
			return fielderr.Within(n.ChildName(i), err)
		}
	}
	return nil
}
