package metamorphic

import (
	"context"
	"fmt"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations while the driver fails. On the CPU, none does, and they succeed.

func init() {
	register(
		&verb{name: "starve", weight: 10, draw: drawStarve, expect: expectReadyBatch, do: doStarve},
		&verb{name: "fault", weight: 18, draw: drawFault, expect: expectReadyBatch, do: doFault},
	)
}

func drawReadyBatch(g *generator) (Op, bool) {
	b := g.one(given(isReady), batchKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}}, true
}

func expectReadyBatch(m *model, o Op) (string, bool) {
	if m.behind { // calls of goroutines would fail
		return "", false
	}
	b := m.get(o.On[0], batchKind)
	if b == nil || !b.ready() {
		return "", false
	}
	return "ok", true
}

// Results of the driver.
const (
	outOfMemory = 2
	unknown     = 999
)

// allocations are the calls of the driver that allocate.
var allocations = []string{"cuMemAllocFromPoolAsync", "cuMemAlloc", "cuMemHostAlloc", "cuMemAllocManaged"}

func drawStarve(g *generator) (Op, bool) {
	o, ok := drawReadyBatch(g)
	o.Args = []string{allocations[g.IntN(len(allocations))]}
	return o, ok
}

// doStarve copies a batch to home while the driver has no memory of one kind. The copy fails, or needs none of it; whatever needs no
// memory goes on; and once there is memory, the copy is right.
func doStarve(r *run, o Op) string {
	b, t := value[*cdevice.RecordBatch](r, o.On[0]), r.tables[o.On[0]].table
	if r.machine != nil {
		r.machine.FailTimes(o.arg(0), 1, 1<<20, outOfMemory)
		err := r.starved(b, t)
		r.machine.FailTimes("", 0, 0, 0)
		if err != nil {
			return err.Error()
		}
	}
	return seenError(r.copiedRight(b, t))
}

func seenError(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (r *run) starved(b *cdevice.RecordBatch, t table) error {
	ctx, cancel := context.WithTimeout(background, 5*time.Millisecond)
	defer cancel()
	if c, err := b.CopyTo(ctx, r.home); err == nil { // which needed none of that memory
		defer c.Release()
	}
	if err := r.exported(b, t, 1, foreign.Thread); err != nil {
		return err
	}
	part, err := b.Slice(0, int64(t.rows))
	if err != nil {
		return err
	}
	part.Release()
	return nil
}

// copiedRight copies a batch to home and reads the copy.
func (r *run) copiedRight(b *cdevice.RecordBatch, t table) error {
	c, err := b.CopyTo(background, r.home)
	if err != nil {
		return err
	}
	defer c.Release()
	return r.sees(c, t)
}

func drawFault(g *generator) (Op, bool) {
	o, ok := drawReadyBatch(g)
	o.Args = []string{[]string{"home", "other", "cpu", "host"}[g.IntN(4)], num(1 + g.IntN(14)), num([]int{outOfMemory, unknown}[g.IntN(2)])}
	return o, ok
}

// doFault has one call of the driver fail while a batch is copied. After that, it is copied right.
func doFault(r *run, o Op) string {
	b, t := value[*cdevice.RecordBatch](r, o.On[0]), r.tables[o.On[0]].table
	if r.machine != nil {
		r.machine.Fail("", o.num(1), o.num(2))
	}
	err := r.tryCopy(b, t, o.arg(0))
	met := true
	if r.machine != nil {
		_, met = r.machine.Failed()
		r.machine.Fail("", 0, 0)
	}
	if err != nil && (r.machine == nil || !met) {
		return fmt.Sprintf("no call of the driver has failed, but: %v", err)
	}
	return seenError(r.copiedRight(b, t))
}

// tryCopy copies a batch, and compares the copy, unless that needs a device that fails, with what it must be.
func (r *run) tryCopy(b *cdevice.RecordBatch, t table, to string) error {
	if to == "host" {
		rec, err := b.CopyToHost(background, nil)
		return same(rec, err, t)
	}
	c, err := b.CopyTo(background, r.at(place(to)))
	if err != nil {
		return err
	}
	defer c.Release()
	return r.sees(c, t)
}
