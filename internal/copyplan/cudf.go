package copyplan

import (
	"context"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ForCuDF returns the tree as libcudf imports it without loss, with a reference to its owner.
func ForCuDF(ctx context.Context, t tree.Tree) (tree.Tree, error) {
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
		if t, err = ToDevice(ctx, t, dev, nil); err != nil {
			return tree.Tree{}, err
		}
	}
	counted, err := CountNulls(ctx, t, true)
	if err != nil {
		t.Mem.Release()
		return tree.Tree{}, err
	}
	t.Nodes = counted
	return t, nil
}

// cuDFType returns an error for a type for which libcudf has no column.
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
