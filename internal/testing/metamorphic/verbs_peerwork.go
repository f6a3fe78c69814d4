package metamorphic

import (
	"bytes"
	"fmt"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Work of a consumer that it enqueues before it releases its struct: the library does not know the stream, and must wait for all GPUs.

func init() {
	register(&verb{name: "peer work", weight: 6, draw: drawPeerWork, expect: expectPeerWork, do: doPeerWork})
}

func drawPeerWork(g *generator) (Op, bool) {
	b := g.one(given(isReady), batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}, Args: []string{string([]place{home, other}[g.IntN(2)]), num(g.IntN(foreign.Ways))}}, true
}

func expectPeerWork(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || !b.ready() {
		return "", false
	}
	return "ok", true
}

// span is a buffer that a consumer copies.
type span struct {
	from   uintptr
	values []byte
}

// doPeerWork exports a copy, whose consumer enqueues copies behind work that is held back, and releases the struct at once.
func doPeerWork(r *run, o Op) string {
	peer := r.consumer(place(o.arg(0)))
	x := foreign.NewDeviceArray()
	r.later(func() { foreign.Forget(x) })
	if err := exportCopy(r.values[o.On[0]], r.home, x); err != nil {
		return err.Error()
	}
	spans, err := spansOf(r, x, r.tables[o.On[0]].table)
	if err != nil {
		return err.Error()
	}
	spans = spans[:min(len(spans), mostCopies)]
	gate, err := r.holdStream(peer)
	if err != nil {
		return err.Error()
	}
	held := gate.Stream
	to, err := peer.Allocate(background, sizeOf(spans), held)
	if err != nil {
		return err.Error()
	}
	must(peer.Copy(rangesTo(to.Ptr(), spans), held))
	must(foreign.Release(foreign.ArrayOf(x), foreign.Way(o.num(1))))
	if err := reuse(r.values[o.On[0]], r.home); err != nil {
		return err.Error()
	}
	must(gate.fire())
	values := make([]byte, sizeOf(spans))
	must(peer.Copy([]device.Range{{Dst: ptr(values), Src: to.Ptr(), Size: int64(len(values))}}, held))
	must(held.Synchronize(background))
	must(to.Free(held))
	for _, s := range spans {
		var copied []byte
		if copied, values = values[:len(s.values)], values[len(s.values):]; !bytes.Equal(copied, s.values) {
			return fmt.Sprintf("the consumer copied %v from %#x, which had %v", copied, s.from, s.values)
		}
	}
	return errorText(gate.end())
}

func sizeOf(spans []span) (n int64) {
	for _, s := range spans {
		n += int64(len(s.values))
	}
	return n
}

// rangesTo are copies of the spans, one behind the other.
func rangesTo(to device.Ptr, spans []span) (all []device.Range) {
	for _, s := range spans {
		all = append(all, device.Range{Dst: to, Src: device.Ptr(s.from), Size: int64(len(s.values))})
		to += device.Ptr(len(s.values))
	}
	return all
}

// consumer is the GPU of home, or another one if there is one: work of it that copies to its memory waits on no call.
func (r *run) consumer(p place) device.Device {
	switch {
	case r.machine == nil:
		return r.home
	case p == other:
		return r.gpus[len(r.gpus)-1]
	}
	return r.gpus[0]
}

// exportCopy exports a copy of a batch or an array, whose only reference the struct has.
func exportCopy(v any, dev device.Device, x *cdevice.CArrowDeviceArray) error {
	c, err := copyTo(v, dev)
	if err != nil {
		return err
	}
	defer c.Release()
	return exportTo(c, x, nil)
}

func copyTo(v any, dev device.Device) (releaser, error) {
	if b, ok := v.(*cdevice.RecordBatch); ok {
		return b.CopyTo(background, dev)
	}
	return v.(*cdevice.Array).CopyTo(background, dev)
}

// reuse makes another copy, which takes memory of the first if that was freed too early.
func reuse(v any, dev device.Device) error {
	c, err := copyTo(v, dev)
	if err == nil {
		c.Release()
	}
	return err
}

// spansOf reads the buffers of a struct, behind its event.
func spansOf(r *run, x *cdevice.CArrowDeviceArray, t table) (spans []span, err error) {
	fetch := r.fetch(r.home, false)
	waitForEvent(r.home, x)
	arr, err := foreign.Read(foreign.ArrayOf(x), t.dataType(), func(address uintptr, size int) ([]byte, error) {
		values, err := fetch(address, size)
		spans = append(spans, span{from: address, values: bytes.Clone(values)})
		return values, err
	})
	if err == nil {
		arr.Release()
	}
	return spans, err
}
