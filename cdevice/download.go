package cdevice

import (
	"context"
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
)

// downloader copies ranges of a device's memory to the host.
type downloader struct {
	*source
	stream device.Stream
	to     *memory.Buffer // where the ranges go
}

// download copies the ranges out of the device's memory, and waits. It takes the buffer:
// after an error, it is released once nothing is written to it any more.
func (s *source) download(ctx context.Context, list []device.Range, to *memory.Buffer, opts []CopyOption) error {
	stream, done, err := copyStream(opts, s.dev)
	if err != nil {
		to.Release()
		return err
	}
	defer done()
	if err := s.at.waitOn(stream); err != nil {
		to.Release()
		return err
	}
	d := downloader{s, stream, to}
	if s.dev.PageLocked(addressOf(to.Bytes()), int64(to.Len())) {
		return d.direct(ctx, list)
	}
	if err := d.staged(ctx, list); err != nil {
		to.Release() // only the host writes to it
		return err
	}
	return nil
}

// direct lets the device write to the buffer.
func (d *downloader) direct(ctx context.Context, list []device.Range) error {
	pins := new(runtime.Pinner)
	pins.Pin(unsafe.SliceData(d.to.Bytes()))
	if err := d.copy(ctx, list); err != nil {
		d.keepUntilDone(d.stream, func() { pins.Unpin(); d.to.Release() })
		return err
	}
	pins.Unpin()
	return nil
}

// copy enqueues the copies, and waits.
func (d *downloader) copy(ctx context.Context, list []device.Range) error {
	if err := d.dev.Copy(list, d.stream); err != nil {
		return err
	}
	return d.stream.Synchronize(ctx)
}

// The most page-locked memory that a copy to plain memory goes through at once.
const downloadLimit = 32 << 20

// staged copies to page-locked memory, and from there by the host: the driver would not
// return from a copy to plain memory before it is done, whatever ctx says.
func (d *downloader) staged(ctx context.Context, list []device.Range) error {
	for len(list) > 0 {
		var piece []device.Range
		piece, list = cutPiece(list, downloadLimit)
		if err := d.piece(ctx, piece); err != nil {
			return err
		}
	}
	return nil
}

// cutPiece returns the first limit bytes of the list, and the rest, which shares its memory.
func cutPiece(list []device.Range, limit int64) (piece, rest []device.Range) {
	for i := range list {
		r := &list[i]
		if r.Size < limit {
			limit -= r.Size
			continue
		}
		piece = append(piece, list[:i]...)
		piece = append(piece, device.Range{Dst: r.Dst, Src: r.Src, Size: limit})
		*r = device.Range{Dst: r.Dst + device.Ptr(limit), Src: r.Src + device.Ptr(limit), Size: r.Size - limit}
		if r.Size == 0 {
			i++
		}
		return piece, list[i:]
	}
	return list, nil
}

// piece copies ranges that fit into page-locked memory together. The list is its own.
func (d *downloader) piece(ctx context.Context, list []device.Range) error {
	size := int64(0)
	for _, r := range list {
		size += r.Size
	}
	host, err := d.dev.AllocateHost(ctx, size)
	if err != nil {
		return err
	}
	out := make([]device.Range, len(list))
	at := host.Ptr()
	for i := range list {
		r := &list[i]
		out[i] = device.Range{Dst: r.Dst, Src: at, Size: r.Size}
		r.Dst = at
		at += device.Ptr(r.Size)
	}
	if err := d.copy(ctx, list); err != nil {
		d.keepUntilDone(d.stream, func() { _ = host.FreeAfter(nil) })
		return err
	}
	err = device.Host().Copy(out, nil)
	_ = host.FreeAfter(nil) // the device tries again by itself
	return err
}
