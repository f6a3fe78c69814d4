package copyplan

import (
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// The padding of a copy. In CPU memory, fillFromHost clears the bytes between buffers; on a device,
// deviceMemory.fill copies zeros to them or fills them.

// zeros is the source of the bytes in gaps: one allocation of the Go heap, which does not move.
var zeros = make([]byte, 2*blockAlignment)

// withZeros fills the gaps between ranges, which are in order, so that one list of copies writes
// the whole block.
func withZeros(ranges []device.Range, base device.Ptr, size int64) []device.Range {
	filled := make([]device.Range, 0, 2*len(ranges)+1)
	at := base
	gap := func(to device.Ptr) {
		for at < to {
			n := min(int64(to-at), int64(len(zeros)))
			filled = append(filled, device.Range{Dst: at, Src: device.Ptr(abi.AddressOf(zeros)), Size: n})
			at += device.Ptr(n)
		}
	}
	for _, r := range ranges {
		gap(r.Dst)
		filled = append(filled, r)
		at = r.Dst + device.Ptr(r.Size)
	}
	gap(base + device.Ptr(size))
	return filled
}

// joined fills the gaps between neighbours, so that they are one copy.
func joined(ranges []device.Range) []device.Range {
	filled := make([]device.Range, 0, 2*len(ranges))
	for _, r := range ranges {
		if k := len(filled) - 1; k >= 0 {
			end := filled[k].Dst + device.Ptr(filled[k].Size)
			if gap := int64(r.Dst - end); gap > 0 && gap < blockAlignment { // no part is between them
				filled = append(filled, device.Range{Dst: end, Src: device.Ptr(abi.AddressOf(zeros)), Size: gap})
			}
		}
		filled = append(filled, r)
	}
	return filled
}

// gaps returns the copies of zeros to the bytes that no part of the layout writes: fewer than there are zeros.
func gaps(l *blockLayout, base device.Ptr) []device.Range {
	list := make([]device.Range, 0, len(l.parts)+1)
	at := int64(0)
	gap := func(to int64) {
		if at < to {
			list = append(list, device.Range{Dst: base + device.Ptr(at), Src: device.Ptr(abi.AddressOf(zeros)), Size: to - at})
		}
	}
	for i, p := range l.parts {
		if p.Size > 0 {
			gap(l.offsets[i])
			at = l.offsets[i] + p.Size
		}
	}
	gap(l.size)
	return list
}

// leastUncleared is the size of a part that is not filled with zeros before it is copied: that takes a device
// as long as another call.
const leastUncleared = 4 << 20

// fills returns the ranges to fill with zeros before the parts are copied: all gaps, with the small parts
// between them.
func fills(l *blockLayout, base device.Ptr) []device.Range {
	list := gaps(l, base)
	n := 0
	for _, r := range list {
		if n > 0 && r.Dst-list[n-1].Dst-device.Ptr(list[n-1].Size) < leastUncleared {
			list[n-1].Size = int64(r.Dst-list[n-1].Dst) + r.Size
			continue
		}
		list[n] = r
		n++
	}
	return list[:n]
}
