package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Copies that are a part of the work on a stream, which may be held back.

func init() {
	register(
		&verb{name: "copy on", weight: 5, draw: drawCopyOn, expect: expectCopyOn, do: doCopyOn},
		&verb{name: "copy on wrong", weight: 2, draw: drawCopyOnWrong, expect: expectCopyOnWrong, do: doCopyOnWrong},
	)
}

// copiedWhat are what is copied: a batch, a column of it, a reader of it, or a record batch of arrow-go.
var copiedWhat = []string{"batch", "array", "reader", "record"}

func drawCopyOn(g *generator) (Op, bool) {
	o := Op{Args: []string{"batch", "int64|" + g.flat(), "0", num(1 + g.IntN(20)), num(g.IntN(1000)),
		string([]place{home, home, cpu}[g.IntN(3)]), string([]place{home, home, other, cpu}[g.IntN(4)]), copiedWhat[g.IntN(len(copiedWhat))],
		[]string{"held", "held", "free"}[g.IntN(3)]}}
	if o.arg(7) == "record" {
		o.Args[5] = string(cpu)
	}
	if o.arg(5) == string(cpu) { // a stream of home is no other device's
		o.Args[6] = string(home)
	}
	return o, true
}

// expectCopyOn: the memory of a copy that was given up may end after all work of the device, and so wait for what the program holds back.
func expectCopyOn(m *model, _ Op) (string, bool) { return "ok", !m.holding }

// streamCopy is a batch whose memory the work on a stream fills: nothing else says when.
type streamCopy struct {
	*run
	b    *cdevice.RecordBatch
	p    *foreign.Producer
	s    *heldStream
	t    table
	from place
}

// fillOn makes a batch that has no event, although a stream fills its memory.
func (r *run) fillOn(spec spec, from place, held bool) (*streamCopy, error) {
	c := &streamCopy{run: r, t: spec.table(), from: from}
	var err error
	if held {
		c.s, err = r.holdStream(r.home)
	} else {
		c.s = &heldStream{r: r}
		c.s.Stream, err = r.home.NewStream()
	}
	if err != nil {
		return nil, err
	}
	if c.p, err = r.produceOn(spec, from, "event", c.s.Stream); err != nil {
		return nil, err
	}
	x := c.p.Device()
	x.SyncEvent = 0
	c.b, err = cdevice.ImportRecordBatchWithSchema(x, c.t.schema(), r.importOptions(r.at(from))...)
	return c, err
}

func doCopyOn(r *run, o Op) string {
	c, err := r.fillOn(specOf(o), place(o.arg(5)), o.arg(8) == "held")
	if err != nil {
		return err.Error()
	}
	return seenError(errors.Join(c.copy(place(o.arg(6)), o.arg(7)), c.end()))
}

// copy copies the batch and releases it. The copy waits for the stream, and has what the stream fills.
func (c *streamCopy) copy(to place, what string) error {
	pending := c.s.gate != nil
	ctx, cancel := background, func() {}
	waits := pending && c.waitsFor(to)
	if waits {
		ctx, cancel = context.WithTimeout(background, 2*time.Millisecond)
	}
	defer cancel()
	made, err := c.copyOf(ctx, what, c.at(to), cdevice.WithStream(c.s.Stream))
	if waits {
		c.b.Release()
		if err == nil {
			made.Release()
		}
		if !is(err, context.DeadlineExceeded) {
			return fmt.Errorf("a copy by the CPU, although work is held back: %w", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer made.Release()
	return c.seesLater(made, pending, what)
}

// waitsFor reports whether the CPU makes the copy, or hands it out, and so waits for the stream.
func (c *streamCopy) waitsFor(to place) bool {
	kind, ok := c.at(to).(device.MemoryKinds)
	pinned := ok && kind.MemoryKind() == device.PinnedMemory
	return to == cpu && c.from != cpu || pinned && c.at(c.from).CPUAccessible()
}

// seesLater releases the batch, lets the stream go on, and reads the copy.
func (c *streamCopy) seesLater(made *cdevice.RecordBatch, pending bool, what string) error {
	ready, err := made.Ready()
	switch {
	case err != nil:
		return err
	case ready && pending:
		return errors.New("the copy is complete before the work on its stream")
	}
	c.b.Release()
	if pending && c.from != cpu && c.p.Ended() > 0 { // memory of the CPU may have been copied to other memory before
		return errors.New("the memory was released before it was copied")
	}
	if err := c.s.fire(); err != nil {
		return err
	}
	if what == "array" {
		c.t = c.t.pick(0)
	}
	return c.sees(made, c.t)
}

// copyOf copies the batch in one of several ways.
func (c *streamCopy) copyOf(ctx context.Context, what string, to device.Device, opts ...cdevice.CopyOption) (*cdevice.RecordBatch, error) {
	switch what {
	case "array":
		a := c.b.Column(0)
		defer a.Release()
		made, err := a.CopyTo(ctx, to, opts...)
		if err != nil {
			return nil, err
		}
		defer made.Release()
		return cdevice.RecordBatchFromArrays(c.t.pick(0).schema(), made)
	case "reader":
		return c.copyOfReader(ctx, to, opts...)
	case "record":
		rec, err := c.b.HostView(ctx)
		if err != nil {
			return nil, err
		}
		defer rec.Release()
		return cdevice.CopyToDevice(ctx, rec, to, opts...)
	}
	return c.b.CopyTo(ctx, to, opts...)
}

// copyOfReader copies the batch as the only one of a reader, whose error it returns.
func (c *streamCopy) copyOfReader(ctx context.Context, to device.Device, opts ...cdevice.CopyOption) (*cdevice.RecordBatch, error) {
	whole, err := cdevice.NewRecordReader(c.t.schema(), c.b.DeviceID().Type, func(yield func(*cdevice.RecordBatch, error) bool) { yield(c.b, nil) })
	if err != nil {
		return nil, err
	}
	defer whole.Release()
	copies, err := whole.CopyTo(ctx, to, opts...)
	if err != nil {
		return nil, err
	}
	defer copies.Release()
	if !copies.Next() {
		return nil, copies.Err()
	}
	made := copies.RecordBatch()
	made.Retain()
	return made, nil
}

// end lets the stream go on, and ends all.
func (c *streamCopy) end() error {
	err := errors.Join(c.s.fire(), c.s.Synchronize(background), c.s.end())
	if !becomes(limit(), func() bool { return c.p.Ended() > 0 }) {
		return errors.Join(err, errors.New("the memory was not released"))
	}
	err = errors.Join(err, c.p.Misuses(), c.p.Reap())
	c.p.Free()
	return err
}

// wrongStreams are streams that no copy of home takes.
var wrongStreams = []string{"nil", "cpu", "other"}

func drawCopyOnWrong(g *generator) (Op, bool) {
	b := g.one(given(isReady, func(b *object) bool { return b.at == home }), batchKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}, Args: []string{wrongStreams[g.IntN(len(wrongStreams))], []string{"batch", "host", "reader"}[g.IntN(3)]}}, true
}

func expectCopyOnWrong(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind)
	if b == nil || !b.ready() || b.at != home {
		return "", false
	}
	return failed("ErrInvalid"), true
}

// doCopyOnWrong copies a batch on a stream of none of its devices. Where there is no other device, it is a nil stream.
func doCopyOnWrong(r *run, o Op) string {
	var s device.Stream
	switch what := o.arg(0); {
	case what == "cpu" && r.machine != nil:
		s = r.newStream(device.CPUDevice())
	case what == "other" && r.two:
		s = r.newStream(r.other)
	}
	if s != nil {
		defer s.Close()
	}
	b := value[*cdevice.RecordBatch](r, o.On[0])
	var err error
	switch o.arg(1) {
	case "host":
		_, err = b.CopyToHost(background, nil, cdevice.WithStream(s))
	case "reader":
		err = copyReaderOn(b, r.home, s)
	default:
		_, err = b.CopyTo(background, r.home, cdevice.WithStream(s))
	}
	return errorText(err)
}

// copyReaderOn copies a reader of one batch on a stream, and returns the first error.
func copyReaderOn(b *cdevice.RecordBatch, to device.Device, s device.Stream) error {
	c := &streamCopy{b: b}
	_, err := c.copyOfReader(background, to, cdevice.WithStream(s))
	return err
}
