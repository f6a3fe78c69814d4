package cdevice

import (
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/forcdata"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

func init() {
	forcdata.CountNulls = countNulls
	forcdata.WrapRecordReader = func(rdr array.RecordReader) (*RecordReader, error) {
		return wrapRecordReader(rdr, device.CPUDevice(), true)
	}
}

// countNulls counts the nulls of a batch or array that was just wrapped, and that nothing else has.
func countNulls(item any) {
	switch item := item.(type) {
	case *RecordBatch:
		if _, counted := item.columns.Source().(*cstruct.Wrapped); !counted {
			countNodes(item.nodes())
		}
	case *Array:
		item.node.Nulls = hostread.Nulls(&item.node)
		countNodes(item.node.Children)
	}
}

func countNodes(nodes []tree.Node) {
	for i := range nodes {
		nodes[i].Nulls = hostread.Nulls(&nodes[i])
		countNodes(nodes[i].Children)
	}
}
