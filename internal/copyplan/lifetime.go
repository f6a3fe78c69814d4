package copyplan

import (
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/keep"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// The order of releases: a source is kept until the event of its copy is complete, or until all work
// that may read it is done where there is none (ToDevice); the memory of a copy is freed after that
// event. The sources of a reader's copies are kept by copiedItem (cdevice/reader_derived.go), which
// releases a source before it ends the use of the reader.

// deviceMemory is the memory of a copy, which its owner holds.
type deviceMemory struct {
	dev    device.Device
	memory device.Memory
	stream device.Stream  // the stream of the copy; a caller's stream is used only until the copy is enqueued
	event  device.Event   // after the copy
	reads  []device.Range // of the copy; nil without a simulated driver
}

// Release frees the memory after the copy that fills it. The owner has waited for all other work
// that may use the memory.
func (d *deviceMemory) Release() {
	if d.event == nil { // part of a failed copy may be enqueued
		tree.AfterWork(d.dev, d.memory.Size(), func() {
			defer DeviceCopies.Add(-1)
			_ = d.memory.FreeAfter(nil)
		})
		return
	}
	defer DeviceCopies.Add(-1)
	_ = d.memory.FreeAfter(d.event) // the backend tries again itself
	tree.CloseEvent(d.event)
}

// DeviceCopies is the count of cdevice.Stats.
var DeviceCopies atomic.Int64

// keepUntilDone keeps the source, and calls release, after the work enqueued on the stream so far
// has completed.
func (s *source) keepUntilDone(stream device.Stream, release func()) {
	s.Mem.Retain()
	afterStream(stream, s.Mem.Known(), func() {
		release()
		s.Mem.Release()
	})
}

// afterStream calls f after the work enqueued on the stream so far has completed; if no event can
// be recorded there, after all work of its device.
func afterStream(s device.Stream, known *keep.Known, f func()) {
	e, err := EventAfter(s)
	if err != nil {
		keep.AfterWork(s.Device(), known, f)
		return
	}
	defer tree.CloseEvent(e)
	keep.OnComplete(e, known, f)
}
