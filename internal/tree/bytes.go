package tree

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// bytes returns how many bytes the owner holds, as far as that is known without reading memory.
func (m *Owner) bytes() (sum int64) {
	switch w := m.values.(type) {
	case arrow.RecordBatch:
		for _, column := range w.Columns() {
			sum += dataBytes(column.Data(), 1)
		}
		return sum
	case arrow.Array:
		return dataBytes(w.Data(), 1)
	}
	return m.Size
}

// dataBytes returns the size of a part of an array of arrow-go's: of a slice, the part of its buffers
// that it is one of, since many slices may share them.
func dataBytes(data arrow.ArrayData, part float64) (sum int64) {
	st, l := layout.Of(data.DataType())
	cut := false // part is that of this array, and not of its parent
	buffers := data.Buffers()
	if !l.Validity { // arrow-go has a place for it all the same
		buffers = buffers[max(len(buffers)-l.Buffers, 0):]
	}
	for i, b := range buffers {
		if b == nil {
			continue
		}
		size := int64(b.Len())
		least := layout.LeastSize(st, l, i, int64(data.Len()))
		if !cut && least > 0 && least < size && i >= l.FirstData() {
			part, cut = part*float64(least)/float64(size), true
		}
		sum += int64(part * float64(size))
	}
	least, known := layout.ChildLength(st, int64(data.Len()))
	for _, child := range data.Children() {
		if !cut && known && least > 0 && least < int64(child.Len()) {
			sum += dataBytes(child, part*float64(least)/float64(child.Len()))
		} else {
			sum += dataBytes(child, part)
		}
	}
	if l.Kind == layout.Dictionary {
		sum += dataBytes(data.Dictionary(), 1)
	}
	return sum
}

// Bytes returns the size of the buffers of nodes as it follows from their lengths: without the
// bytes of strings, whose number is in memory that work may still write.
func Bytes(nodes []Node) (sum int64) {
	for i := range nodes {
		n := &nodes[i]
		for j, addr := range n.Buffers {
			if NoData(addr) {
				continue
			}
			sum += min(layout.LeastSize(n.Storage(), n.Layout, j, n.Offset+n.Length), math.MaxInt64-sum)
		}
		sum += min(Bytes(n.Children), math.MaxInt64-sum)
	}
	return sum
}
