package copyplan

import (
	"context"
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/hostcopy"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// downloader copies ranges of device memory to CPU memory.
type downloader struct {
	*source
	stream device.Stream
	to     *memory.Buffer // the destination of the ranges
}

// download copies ranges of device memory to the buffer, and waits. It takes the buffer: after an
// error, it releases it when no copy writes to it any more.
func download(ctx context.Context, s *source, list []device.Range, to *memory.Buffer, on device.Stream) error {
	stream, done, err := copyStream(on, s.dev)
	if err != nil {
		to.Release()
		return err
	}
	defer done()
	if err = awaitRoom(ctx, stream); err == nil {
		err = s.At.WaitOn(stream)
	}
	if err != nil {
		to.Release()
		return err
	}
	d := downloader{s, stream, to}
	if stager, ok := s.dev.(device.Stager); !ok || stager.PageLocked(device.Ptr(abi.AddressOf(to.Bytes())), int64(to.Len())) {
		return d.direct(ctx, list)
	}
	if err := d.staged(ctx, list); err != nil {
		to.Release() // only the CPU writes to it
		return err
	}
	return nil
}

// direct makes the device copy into the buffer itself.
func (d *downloader) direct(ctx context.Context, list []device.Range) error {
	pins := new(runtime.Pinner)
	pins.Pin(unsafe.SliceData(d.to.Bytes()))
	if err := d.copy(ctx, list); err != nil {
		d.keepUntilDone(d.stream, func() {
			pins.Unpin()
			// The allocator may be the program's, and pass the memory on.
			d.Mem.Waits().Publish() // mutant: deleted
			d.to.Release()
		})
		return err
	}
	pins.Unpin()
	return nil
}

// copy enqueues the copies, and waits.
func (d *downloader) copy(ctx context.Context, list []device.Range) error {
	if err := enqueueCopies(ctx, d.dev, list, d.stream); err != nil {
		return err
	}
	return d.stream.Synchronize(ctx)
}

// A copy to plain memory is divided into some pieces, of sizes within these limits, of which two may be in progress in
// pinned staging memory.
const (
	leastDownload = 4 << 20
	mostDownload  = 8 << 20
	downloads     = 4
)

// staged copies to pinned memory; the CPU copies one piece from there while the next one arrives. A
// direct copy to plain memory would block in the driver until it is done, even if ctx has ended.
func (d *downloader) staged(ctx context.Context, list []device.Range) error {
	var before *piece
	limit := min(max(hostcopy.Size(list)/downloads, leastDownload), mostDownload)
	for len(list) > 0 || before != nil {
		next, rest, err := d.start(ctx, list, limit)
		if err == nil {
			err = d.finish(ctx, before)
		}
		if err != nil {
			d.abandon(before, next)
			return err
		}
		before, list = next, rest
	}
	return nil
}

// piece is a part of the ranges in pinned staging memory.
type piece struct {
	host device.Memory
	out  []device.Range // the copies out of the staging memory
	done device.Event   // the event after the copies; nil if they are the last work on the stream
}

// start enqueues the copies of the first piece of the list, of at most limit bytes. It returns the rest.
func (d *downloader) start(ctx context.Context, list []device.Range, limit int64) (*piece, []device.Range, error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	in, rest := hostcopy.Cut(list, limit)
	host, err := allocateHost(ctx, d.dev, hostcopy.Size(in))
	if err != nil {
		return nil, nil, err
	}
	p := &piece{host: host, out: make([]device.Range, len(in))}
	at := host.Ptr()
	for i := range in {
		r := &in[i]
		p.out[i] = device.Range{Dst: r.Dst, Src: at, Size: r.Size}
		r.Dst = at
		at += device.Ptr(r.Size)
	}
	err = enqueueCopies(ctx, d.dev, in, d.stream)
	if err == nil && len(rest) > 0 {
		p.done, err = EventAfter(d.stream)
	}
	return p, rest, err
}

// finish waits for the piece, if there is one, and copies it to its destination. After an error the piece is
// the caller's.
func (d *downloader) finish(ctx context.Context, p *piece) error {
	if p == nil {
		return nil
	}
	wait := d.stream.Synchronize
	if p.done != nil {
		wait = p.done.Synchronize
	}
	if err := wait(ctx); err != nil {
		return err
	}
	if err := hostcopy.CopyFresh(ctx, p.out); err != nil {
		return err
	}
	p.free()
	return nil
}

// abandon frees pieces, if there are any, when no copy writes to them any more.
func (d *downloader) abandon(pieces ...*piece) {
	d.keepUntilDone(d.stream, func() {
		for _, p := range pieces {
			if p != nil {
				p.free()
			}
		}
	})
}

func (p *piece) free() {
	tree.CloseEvent(p.done)
	_ = p.host.FreeAfter(nil) // the backend tries again itself
}
