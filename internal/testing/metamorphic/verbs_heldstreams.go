package metamorphic

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// One batch on many streams, each of which is held back by an event of its own.

func init() {
	register(&verb{name: "held streams", weight: 8, draw: drawHeldStreams, expect: expectHeldStreams, do: doHeldStreams})
}

var (
	origins = []string{"producer", "producer", "copy", "copy", "program"}
	fates   = []string{"", "struct", "struct", "late struct", "events", "events"}
)

func drawHeldStreams(g *generator) (Op, bool) {
	n := 2 + g.IntN(4)
	if g.IntN(3) == 0 {
		n = 17 + g.IntN(4)
	}
	return Op{Args: []string{"batch", "int64|" + g.flat(), num(g.IntN(3)), num(1 + g.IntN(20)), num(g.IntN(1000)),
		origins[g.IntN(len(origins))], num(n), fates[g.IntN(len(fates))], []string{"", "", "closed"}[g.IntN(3)], num(g.IntN(1000))}}, true
}

// expectHeldStreams: memory that ends after all work of the device would also wait for the work that the program holds back.
func expectHeldStreams(m *model, o Op) (string, bool) {
	known := o.arg(5) == "producer" && o.num(6) <= 16 && o.arg(8) != "closed"
	return "ok", known || !m.holding
}

// lent is a batch whose memory is seen to end.
type lent struct {
	*cdevice.RecordBatch
	released bool         // all references are released
	ended    func() int   // how often the memory has ended
	free     func() error // frees what is left
}

// lend makes a batch at home of a spec.
func (r *run) lend(s spec, origin string) (*lent, error) {
	at, flavour := home, "event"
	switch origin {
	case "copy":
		at = cpu
	case "program":
		flavour = ""
	}
	p, err := r.produce(s, at, flavour)
	if err != nil {
		return nil, err
	}
	if origin == "program" {
		return r.lendOwn(s, p)
	}
	b, err := cdevice.ImportRecordBatchWithSchema(p.Device(), s.table().schema(), r.importOptions(r.at(at))...)
	if err != nil {
		return nil, err
	}
	l := &lent{RecordBatch: b, ended: p.Ended, free: func() error {
		defer p.Free()
		return errors.Join(p.Misuses(), p.Reap())
	}}
	if origin == "copy" {
		l.RecordBatch, err = b.CopyTo(background, r.home)
		l.ended = func() int { return r.ceased(l) }
		b.Release()
	}
	return l, err
}

// lendOwn makes a batch of memory of the program.
func (r *run) lendOwn(s spec, p *foreign.Producer) (*lent, error) {
	ended := new(atomic.Int64)
	b, err := r.newBatch(s, home, p, ended)
	return &lent{RecordBatch: b, ended: func() int { return int(ended.Load()) }, free: func() error {
		p.Free()
		return nil
	}}, err
}

// ceased is 1 if the memory of a copy has ended: it was released, and no memory waits for work.
func (r *run) ceased(l *lent) int {
	if !l.released {
		return 0
	}
	for _, gpu := range r.gpus {
		if gpu.ReadStats().Waiting > 0 {
			return 0
		}
	}
	return 1
}

// watched is a batch whose first column streams read behind their events.
type watched struct {
	*run
	*lent
	random  *rand.Rand
	streams []*heldStream
	copies  []copyOf
	events  bool                       // each stream records an event of the batch
	unknown bool                       // some streams are not recorded as uses: those of a consumer of the exported struct
	x       *cdevice.CArrowDeviceArray // an exported struct
}

// copyOf is what a stream has read.
type copyOf struct {
	device.Memory
	dev  device.Device
	done device.Event
}

// doHeldStreams has n streams read one batch, and releases the batch before the streams go on, in any order.
func doHeldStreams(r *run, o Op) string {
	l, err := r.lend(specOf(o), o.arg(5))
	if err != nil {
		return err.Error()
	}
	w := &watched{run: r, lent: l, random: rand.New(rand.NewPCG(uint64(o.num(9)), 3)), events: o.arg(7) == "events", x: foreign.NewDeviceArray()}
	defer foreign.Forget(w.x)
	w.unknown = o.arg(5) != "producer" && (o.arg(7) != "" || o.arg(5) == "program")
	want := r.firstColumn(specOf(o))
	for k := range o.num(6) {
		if err := w.start(k, len(want)); err != nil {
			return err.Error()
		}
	}
	return seenError(errors.Join(w.through(o), w.end(want)))
}

// firstColumn is the values of the first column of a batch, which is an int64.
func (r *run) firstColumn(s spec) []byte {
	arr := data(r.goMemory(), s.types, s.offset, s.rows, s.seed, true)
	defer arr.Release()
	return bytes.Clone(arr.Data().Children()[0].Buffers()[1].Bytes()[8*s.offset:])
}

// start has stream k read the first column. It may be one of the second GPU.
func (w *watched) start(k, size int) error {
	d, mem := w.home, w.home
	switch {
	case w.two && !w.events && k%3 == 2:
		d, mem = w.other, w.other
	case w.machine != nil:
		mem = w.gpus[0]
	}
	stream, err := w.holdStream(d)
	if err != nil {
		return err
	}
	w.streams = append(w.streams, stream)
	to, err := mem.Allocate(background, int64(size), stream.Stream)
	if err != nil {
		return err
	}
	done, err := d.NewEvent()
	if err != nil {
		return err
	}
	w.copies = append(w.copies, copyOf{to, mem, done})
	if err := w.read(stream, w.copies[k]); err != nil {
		return err
	}
	return w.record(stream)
}

// read enqueues the copy of the first column.
func (w *watched) read(on *heldStream, to copyOf) error {
	if err := w.WaitOn(on.Stream); err != nil {
		return err
	}
	column := w.Column(0)
	defer column.Release()
	if err := to.dev.Copy([]device.Range{{Dst: to.Ptr(), Src: column.Buffers()[1] + device.Ptr(8*column.Offset()), Size: to.Size()}}, on.Stream); err != nil {
		return err
	}
	if w.unknown && w.random.IntN(2) == 0 {
		return on.Record(to.done)
	}
	return errors.Join(w.UsedOn(on.Stream), on.Record(to.done))
}

// record has the batch replaced by one with an event of the stream, and of those before it.
func (w *watched) record(on *heldStream) error {
	if !w.events {
		return nil
	}
	with, err := w.WithEvent(on.Stream)
	if err != nil {
		return err
	}
	w.Release()
	w.RecordBatch = with
	return nil
}

// through releases the batch, lets the streams go on, and waits for the end of the memory.
func (w *watched) through(o Op) error {
	fate := o.arg(7)
	if fate != "" {
		if err := cdevice.ExportRecordBatch(w.RecordBatch, w.x, nil); err != nil {
			return err
		}
	}
	if o.arg(8) == "closed" {
		w.closeSome()
	}
	w.Release()
	if fate == "struct" {
		if err := foreign.Release(foreign.ArrayOf(w.x), foreign.Way(w.random.IntN(foreign.Ways))); err != nil {
			return err
		}
	}
	w.released = fate == "" || fate == "struct"
	if err := w.fireAll(); err != nil {
		return err
	}
	if !w.released {
		if err := w.readStruct(specOf(o).table()); err != nil {
			return err
		}
	}
	if !becomes(limit(), func() bool { return w.ended() > 0 }) || w.ended() != 1 {
		return fmt.Errorf("the memory was released %d times", w.ended())
	}
	return nil
}

// closeSome closes every other stream, whose work goes on.
func (w *watched) closeSome() {
	for k, stream := range w.streams {
		if k%2 == 0 {
			must(stream.Close())
		}
	}
}

// order is that in which the streams go on: any, or that of their uses, or the opposite.
func (w *watched) order() []int {
	all := w.random.Perm(len(w.streams))
	switch w.random.IntN(3) {
	case 0:
		slices.Sort(all)
	case 1:
		slices.Sort(all)
		slices.Reverse(all)
	}
	return all
}

// fireAll lets one stream after the other go on. Until the last one does, the memory is in use, and an event of all is not complete.
func (w *watched) fireAll() error {
	for i, k := range w.order() {
		if i == len(w.streams)-1 {
			time.Sleep(200 * time.Microsecond) // for one who releases the memory too early, on another goroutine
		}
		if n := w.ended(); n > 0 && (w.machine != nil || !w.released) {
			return fmt.Errorf("the memory was released after %d of %d streams had read it", i, len(w.streams))
		}
		if w.events && w.machine != nil {
			if err := w.isPending(); err != nil {
				return err
			}
		}
		if err := w.streams[k].fire(); err != nil {
			return err
		}
		if !w.events { // else the work of others comes before
			if err := w.copies[k].done.Synchronize(background); err != nil {
				return err
			}
		}
	}
	return nil
}

// isPending returns an error if the event of the struct is complete.
func (w *watched) isPending() error {
	e, err := w.home.WrapEvent(foreign.Event(w.x))
	if err != nil {
		return err
	}
	defer e.Close()
	done, err := e.Query()
	if err == nil && done {
		err = errors.New("sync_event is complete before the work of all streams")
	}
	return err
}

// readStruct imports the exported struct, reads and releases it.
func (w *watched) readStruct(t table) error {
	again, err := cdevice.ImportRecordBatchWithSchema(w.x, t.schema(), w.importOptions(w.home)...)
	if err != nil {
		return err
	}
	err = w.sees(again, t)
	again.Release()
	w.released = true
	return err
}

// end compares what the streams have read, and frees all.
func (w *watched) end(want []byte) (err error) {
	for k, stream := range w.streams {
		err = errors.Join(err, stream.fire(), w.copies[k].done.Synchronize(background))
	}
	for k, to := range w.copies {
		got, failed := w.fetch(to.dev, false)(uintptr(to.Ptr()), len(want))
		if failed == nil && !bytes.Equal(got, want) {
			failed = fmt.Errorf("stream %d has read %v, not %v", k, got, want)
		}
		err = errors.Join(err, failed, to.Free(nil), to.done.Close(), w.streams[k].end())
	}
	return errors.Join(err, w.free())
}
