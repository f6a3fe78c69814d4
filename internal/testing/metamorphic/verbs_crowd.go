package metamorphic

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Operations of several goroutines at the same time.

func init() {
	register(
		&verb{name: "crowd", weight: 6, draw: drawCrowd, expect: expectCrowd, do: doCrowd, fixed: true},
		&verb{name: "race", weight: 6, draw: drawRace, expect: expectRace, do: doRace, fixed: true},
	)
}

// deeds are what each goroutine of a crowd does with a batch.
var deeds = []string{"retain", "slice", "export", "export on threads", "read", "select", "all"}

func drawCrowd(g *generator) (Op, bool) {
	b := g.one(given(isReady, isShareable), batchKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}, Args: []string{deeds[g.IntN(len(deeds))], num(2 + g.IntN(3)), num(5 + g.IntN(40))}}, true
}

// isShareable reports whether goroutines may read a batch at the same time: arrow-go's dictionary arrays make their dictionaries when
// they are first read, without a lock.
func isShareable(b *object) bool {
	return !slices.ContainsFunc(b.types, func(name string) bool { return strings.Contains(name, "dictionary") })
}

func expectCrowd(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind)
	if b == nil || !b.ready() || !isShareable(b) {
		return "", false
	}
	return "ok", true
}

func doCrowd(r *run, o Op) string {
	b := value[*cdevice.RecordBatch](r, o.On[0])
	t := r.tables[o.On[0]].table
	return together(o.num(1), func(i int) error {
		for k := range o.num(2) {
			deed := o.arg(0)
			if deed == "all" {
				deed = deeds[(i+k)%(len(deeds)-1)]
			}
			if err := r.deed(deed, b, t, k); err != nil {
				return err
			}
		}
		return nil
	})
}

// together runs f on n goroutines, and returns the first failure, or "ok".
func together(n int, f func(i int) error) string {
	var all sync.WaitGroup
	failures := make([]error, n)
	for i := range n {
		all.Go(func() {
			defer func() {
				if v := recover(); v != nil {
					failures[i] = fmt.Errorf("panic: %v\n%s", v, stacks())
				}
			}()
			failures[i] = f(i)
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return err.Error()
	}
	return "ok"
}

// deed does something with a batch that has the table, and leaves nothing.
func (r *run) deed(deed string, b *cdevice.RecordBatch, t table, k int) error {
	switch deed {
	case "retain":
		b.Retain()
		b.Release()
	case "slice":
		i := k % (t.rows + 1)
		part, err := b.Slice(int64(i), int64(t.rows))
		if err != nil {
			return err
		}
		defer part.Release()
		if part.NumRows() != int64(t.rows-i) {
			return fmt.Errorf("a slice has %d rows", part.NumRows())
		}
		if k%8 == 0 {
			return r.sees(part, t.slice(i, t.rows))
		}
	case "select":
		part, err := b.Select()
		if err != nil {
			return err
		}
		part.Release()
	case "export":
		return r.exported(b, t, k, foreign.Way(k%foreign.Ways))
	case "export on threads":
		return r.exported(b, t, k, foreign.Thread)
	default:
		return r.sees(b, t)
	}
	return nil
}

// sees reads a batch, and compares it with a table.
func (r *run) sees(b *cdevice.RecordBatch, t table) error {
	if r.accessible(b.DeviceID()) {
		rec, err := b.HostView(background)
		return same(rec, err, t)
	}
	rec, err := b.CopyToHost(background, memory.DefaultAllocator)
	return same(rec, err, t)
}

func same(rec arrow.RecordBatch, err error, t table) error {
	if err != nil {
		return err
	}
	defer rec.Release()
	if got := seenRecord(rec); got != t.String() {
		return fmt.Errorf("read %s, not %s", got, t)
	}
	return nil
}

// exported exports a batch, which C releases. Every eighth struct is read, or imported.
func (r *run) exported(b *cdevice.RecordBatch, t table, k int, way foreign.Way) error {
	x := foreign.NewDeviceArray()
	defer foreign.Forget(x)
	if err := cdevice.ExportRecordBatch(b, x, nil); err != nil {
		return err
	}
	if k%8 != 0 {
		return foreign.Release(foreign.ArrayOf(x), way)
	}
	d, err := b.Device()
	if err != nil {
		d = device.CPUDevice()
	}
	again, err := cdevice.ImportRecordBatchWithSchema(x, t.schema(), cdevice.WithDevice(d))
	if err != nil {
		return err
	}
	defer again.Release()
	return r.sees(again, t)
}

func drawRace(g *generator) (Op, bool) {
	b := g.one(given(isReady, isShareable, func(b *object) bool { return b.refs == 1 }), batchKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}, Args: []string{deeds[1+g.IntN(len(deeds)-1)], num(1 + g.IntN(2)), num(g.IntN(30))}}, true
}

func expectRace(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind)
	if b == nil || !b.ready() || b.refs != 1 || !isShareable(b) {
		return "", false
	}
	m.release(b)
	return "ok", true
}

// doRace releases a batch while others use it, who see its values or ErrReleased, and never those of another batch: meanwhile others are
// imported, exported by two goroutines and released, in the memory that the first one leaves.
func doRace(r *run, o Op) string {
	b := value[*cdevice.RecordBatch](r, o.On[0])
	t := r.tables[o.On[0]].table
	var over atomic.Bool
	return together(o.num(1)+2, func(i int) error {
		switch i {
		case 0:
			for range o.num(2) {
				runtime.Gosched()
			}
			b.Release()
			return nil
		case 1:
			return r.churn(&over)
		}
		defer over.Store(true)
		for k := 0; ; k++ {
			runtime.Gosched()
			deed := o.arg(0)
			if deed == "all" {
				deed = deeds[1+(i+k)%(len(deeds)-2)]
			}
			if err := r.deed(deed, b, t, k); errors.Is(err, cdevice.ErrReleased) {
				break
			} else if err != nil {
				return err
			}
		}
		for range 50 { // late calls, when the memory may be another batch's
			if err := r.deed("slice", b, t, 1); !errors.Is(err, cdevice.ErrReleased) {
				return fmt.Errorf("a slice of a released batch: %v", err)
			}
			if err := r.exported(b, t, 1, foreign.Here); !errors.Is(err, cdevice.ErrReleased) {
				return fmt.Errorf("an export of a released batch: %v", err)
			}
			if text := panicText(b.Release); text != "panic "+failed("ErrReleased") {
				return fmt.Errorf("a release too many: %s", text)
			}
			if text := panicText(b.Retain); text != "panic "+failed("ErrReleased") {
				return fmt.Errorf("a late retain: %s", text)
			}
		}
		return nil
	})
}

// churn imports batches one after the other, exports each on two goroutines, and releases it, until over is set.
func (r *run) churn(over *atomic.Bool) error {
	t := tableOf([]string{"int64", "utf8"}, 0, 5, 77, true)
	arr := data(memory.DefaultAllocator, t.types, 0, t.rows, 77, true)
	defer arr.Release()
	s := t.schema()
	for k := 0; k < 3 || !over.Load(); k++ {
		p, err := foreign.New(arr.Data(), foreign.Place{Dev: device.CPUDevice()})
		if err != nil {
			return err
		}
		b, err := cdevice.ImportRecordBatchWithSchema(p.Plain(), s)
		if err != nil {
			return err
		}
		text := together(2, func(i int) error {
			for range 4 {
				x := foreign.NewArray()
				defer foreign.Forget(x)
				if err := cdevice.ExportRecordBatch[cdata.CArrowArray](b, x, nil); err != nil {
					return err
				}
				if err := foreign.Release(x, foreign.Way(i)); err != nil {
					return err
				}
			}
			return nil
		})
		if text != "ok" {
			return errors.New(text)
		}
		if p.Ended() != 0 {
			return errors.New("a producer of another batch was released while that is in use")
		}
		err = r.sees(b, t)
		b.Release()
		if n := p.Ended(); n != 1 && err == nil {
			err = fmt.Errorf("a producer of another batch was released %d times", n)
		}
		p.Free()
		if err != nil {
			return err
		}
	}
	return nil
}
