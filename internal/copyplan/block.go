package copyplan

import (
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// blockAlignment is the alignment of every buffer in the allocation of a copy. The bytes between a
// buffer's end and the next buffer are zero: consumers read bitmaps in whole words, and cuDF itself
// pads to 64 bytes.
const blockAlignment = 256

func blockAligned(n int64) int64 { return (n + blockAlignment - 1) &^ (blockAlignment - 1) }

// blockLayout has the positions of the parts of copy plans in one allocation.
type blockLayout struct {
	parts   []part
	offsets []int64
	// size includes all parts and, after them, one aligned unit for empty buffers, if there are any: they need an
	// address on the same device.
	size     int64
	hasEmpty bool
	nodes    int
	views    int // sizes of view buffers
}

func layBlock(plans []Plan) *blockLayout {
	l := &blockLayout{}
	count := 0
	for i := range plans {
		count += plans[i].countParts()
	}
	l.parts, l.offsets = make([]part, 0, count), make([]int64, 0, count)
	l.add(plans)
	if l.hasEmpty || l.size == 0 {
		l.size += blockAlignment
	}
	return l
}

// countParts returns the number of parts of the plan and those below it.
func (t *Plan) countParts() int {
	count := len(t.Parts)
	for i := range t.Children {
		count += t.Children[i].countParts()
	}
	return count
}

func (l *blockLayout) add(plans []Plan) {
	for i := range plans {
		t := &plans[i]
		l.nodes++
		if t.Layout.Kind == layout.View {
			l.views += len(t.Parts) - t.Layout.FirstData() - 1
		}
		for k, p := range t.Parts {
			l.hasEmpty = l.hasEmpty || p.Size == 0 && !t.isNoBitmap(k)
			l.parts = append(l.parts, p)
			l.offsets = append(l.offsets, l.size)
			l.size += blockAligned(p.Size)
		}
		l.add(t.Children)
	}
}

func (l *blockLayout) empty() int64 { return l.size - blockAlignment }

// copyRanges is a list of copies of parts. One extends the one before it if source and destination continue there. The bytes
// between whole buffers of one block are zero, so they may be copied too; what follows a cut part are other elements.
type copyRanges struct {
	list       []device.Range
	afterWhole bool // the last part is a whole buffer
}

func (r *copyRanges) add(dst uintptr, p part) {
	both := r.afterWhole && p.whole
	r.afterWhole = p.whole
	if k := len(r.list) - 1; k >= 0 {
		last := &r.list[k]
		gap := p.Addr - uintptr(last.Src) - uintptr(last.Size)
		if gap == dst-uintptr(last.Dst)-uintptr(last.Size) && (gap == 0 || both && gap < blockAlignment) {
			last.Size += int64(gap) + p.Size
			return
		}
	}
	r.list = append(r.list, device.Range{Dst: device.Ptr(dst), Src: device.Ptr(p.Addr), Size: p.Size})
}
