package cdevice

import (
	"context"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
)

// ForCuDF makes the export one that libcudf (cuDF, pylibcudf) imports without loss:
// exact null counts, since it takes an unknown one for none; no offsets; bitmaps that are
// aligned and padded with zeros, since it reads them in whole words; and only types, index
// types and lengths that it has. A batch that is not laid out like this is copied on its
// device first; null counts that are not known are counted, which waits for the batch's
// event. ctx ends the wait.
//
// What does not fit is an error that names the column and wraps arrow.ErrNotImplemented.
// The memory must be CUDA's: device, managed or page-locked memory.
func ForCuDF(ctx context.Context) ExportOption {
	return func(o *exportOptions) {
		o.ctx, o.cuDF = ctx, true
		o.need(opExport, "ForCuDF", ctx, "a context")
	}
}

// fitCuDF returns the trees as libcudf wants them. The owner is retained.
func fitCuDF(ctx context.Context, mem *memoryOwner, at place, nodes []node, name func(int) string) (*memoryOwner, place, []node, error) {
	switch at.id.Type {
	case device.CUDA, device.CUDAHost, device.CUDAManaged:
	default:
		return nil, at, nil, fieldError(opExport, "ArrowDeviceArray.device_type", at.id.Type, "memory of CUDA (ForCuDF)", device.ErrNotSupported)
	}
	fits := true
	for i := range nodes {
		if err := cuDFType(&nodes[i]); err != nil {
			return nil, at, nil, within(name(i), err)
		}
		fits = fits && mem.block.asMade(&nodes[i])
	}
	if fits {
		mem.retain()
	} else {
		dev, err := at.device()
		if err != nil {
			return nil, at, nil, err
		}
		if mem, at, nodes, err = copyTo(ctx, mem, at, nodes, name, dev, nil); err != nil {
			return nil, at, nil, err
		}
	}
	counted, err := countNulls(ctx, mem, at, nodes, true)
	if err != nil {
		mem.Release()
		return nil, at, nil, err
	}
	return mem, at, counted, nil
}

// asMade says whether the node and all below it are those of a copy of ours.
func (b *block) asMade(n *node) bool {
	if _, ok := b.whole(n); !ok {
		return false
	}
	for i := range n.children {
		if !b.asMade(&n.children[i]) {
			return false
		}
	}
	return true
}

// cuDFType says what libcudf has no column for.
func cuDFType(n *node) error {
	if n.length > math.MaxInt32 {
		return fieldError(opExport, "length", n.length, fmt.Sprintf("at most %d (cuDF)", math.MaxInt32), arrow.ErrNotImplemented)
	}
	dt := n.dtype
	switch dt.ID() {
	case arrow.BOOL, arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.UINT8, arrow.UINT16, arrow.UINT32, arrow.UINT64,
		arrow.FLOAT32, arrow.FLOAT64, arrow.DATE32, arrow.TIMESTAMP, arrow.DURATION, arrow.DECIMAL32, arrow.DECIMAL64, arrow.DECIMAL128,
		arrow.STRING, arrow.LARGE_STRING, arrow.LIST, arrow.STRUCT:
	case arrow.DICTIONARY:
		if index := dt.(*arrow.DictionaryType).IndexType; !arrow.IsSignedInteger(index.ID()) {
			return fieldError(opExport, "type", dt, "signed dictionary indices (cuDF)", arrow.ErrNotImplemented)
		}
	default:
		return fieldError(opExport, "type", dt, "a type that cuDF has", arrow.ErrNotImplemented)
	}
	for i := range n.children {
		if err := cuDFType(&n.children[i]); err != nil {
			return within(n.childName(i), err)
		}
	}
	return nil
}
