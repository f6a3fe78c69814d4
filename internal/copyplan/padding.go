package copyplan

import (
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// The padding of a copy. In CPU memory, fillFromHost clears the bytes between buffers; on a device,
// deviceMemory.fill copies zeros to them or sets them.

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

// gaps returns the copies of zeros to the bytes that no part of the layout writes.
func gaps(l *blockLayout, base device.Ptr) []device.Range {
	var list []device.Range
	for _, r := range withZeros(l.ranges(base), base, l.size) {
		if r.Src != 0 {
			list = append(list, r)
		}
	}
	return list
}
