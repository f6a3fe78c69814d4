// Package hostcopy copies memory of the host, by several goroutines where that is faster: one core copies a
// fraction of what a bus to a GPU carries, and a copy into fresh memory also waits for each of its pages.
package hostcopy

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
)

const (
	pieceSize      = 256 << 10 // what a goroutine copies at a time
	leastShare     = 512 << 10 // the bytes that are worth another goroutine, which takes some microseconds to start
	mostGoroutines = 4
)

var most atomic.Int32

func init() { most.Store(mostGoroutines) }

// SetMost sets how many goroutines copy at most, and returns how many did before. It is for measurements.
func SetMost(goroutines int) (before int) { return int(most.Swap(int32(goroutines))) }

// Copy copies the ranges, and returns when none of its goroutines is left. Each time that the next step bytes of the list are
// there, and at the end, it calls reached, unless that is nil, on the goroutine of the caller while the others go on. step
// is a multiple of 256 KiB.
//
// No destination overlaps another range. The error is that of ctx or of reached, or one for memory that cannot be
// accessed. Copy may change the list.
func Copy(ctx context.Context, list []device.Range, step int64, reached func() error) error {
	return inPieces(ctx, list, step, reached, func(uintptr, int64) {})
}

// CopyFresh is Copy to memory whose pages the system may not have provided yet, as it has not those of a large
// allocation of Go. It asks for the pages of a piece at once: a page fault for each takes longer than the copy.
func CopyFresh(ctx context.Context, list []device.Range) error {
	return inPieces(ctx, list, pieceSize, nil, populate)
}

// inPieces is Copy. prepare is called for each range of a piece before it is written.
func inPieces(ctx context.Context, list []device.Range, step int64, reached func() error, prepare func(to uintptr, size int64)) error {
	total := Size(list)
	pieces := make([][]device.Range, 0, total/pieceSize+1)
	for len(list) > 0 {
		var piece []device.Range
		piece, list = Cut(list, pieceSize)
		pieces = append(pieces, piece)
	}
	work := func(i int) error { return copyPiece(ctx, pieces[i], prepare) }
	return inOrder(goroutines(total), len(pieces), work, func(i int) error {
		if reached == nil || i+1 < len(pieces) && int64(i+1)*pieceSize%step != 0 {
			return nil
		}
		return reached()
	})
}

// goroutines returns how many copy so many bytes.
func goroutines(total int64) int {
	n := total / leastShare
	if n <= 1 {
		return 1
	}
	return int(min(n, int64(most.Load()), int64(runtime.GOMAXPROCS(0))))
}

func copyPiece(ctx context.Context, piece []device.Range, prepare func(to uintptr, size int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return memcopy.Guard(func() error {
		for _, r := range piece {
			prepare(uintptr(r.Dst), r.Size)
			_ = memcopy.Copy(uintptr(r.Dst), uintptr(r.Src), r.Size, nil)
		}
		return nil
	})
}

// Size returns the bytes of the list.
func Size(list []device.Range) (total int64) {
	for _, r := range list {
		total += r.Size
	}
	return total
}

// Cut returns the first limit bytes of the list, and the rest, which shares its memory.
func Cut(list []device.Range, limit int64) (piece, rest []device.Range) {
	for i := range list {
		r := &list[i]
		if r.Size < limit {
			limit -= r.Size
			continue
		}
		if r.Size == limit {
			return list[: i+1 : i+1], list[i+1:]
		}
		piece = append(append(piece, list[:i]...), device.Range{Dst: r.Dst, Src: r.Src, Size: limit})
		*r = device.Range{Dst: r.Dst + device.Ptr(limit), Src: r.Src + device.Ptr(limit), Size: r.Size - limit}
		return piece, list[i:]
	}
	return list, nil
}
