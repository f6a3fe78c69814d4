package metamorphic

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Calls that are stopped between two instructions, until their batch has gone and another one is in the memory of its owner.

func init() {
	register(&verb{name: "late call", weight: 3, draw: drawLateCall, expect: expectLateCall, do: doLateCall, fixed: true})
}

func drawLateCall(g *generator) (Op, bool) {
	return Op{Args: []string{[]string{"export", "export", "slice", "read"}[g.IntN(4)], num(4 + g.IntN(12))}}, true
}

func expectLateCall(*model, Op) (string, bool) { return "ok", true }

// numbered is a batch whose only value is a number.
type numbered struct {
	batch    *cdevice.RecordBatch
	producer *foreign.Producer
	value    int
}

// late is the state that the goroutines of a late call share.
type late struct {
	first  atomic.Pointer[numbered] // the batch of the call that is stopped
	second atomic.Pointer[numbered] // the one after it, which others export meanwhile
	calls  atomic.Int64             // of the first
	over   atomic.Bool
	made   []*foreign.Producer
}

func doLateCall(r *run, o Op) string {
	rounds := o.num(1)
	if r.Name != Worlds[0].Name { // it is memory of the CPU in all worlds
		rounds = 1
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2)) // a stopped thread keeps its processor
	l := new(late)
	return together(3, func(i int) (err error) {
		switch i {
		case 0:
			defer l.over.Store(true)
			return l.lead(rounds)
		case 1:
			foreign.Stoppable(func() { err = l.follow(o.arg(0)) })
			return err
		}
		return l.disturb()
	})
}

// lead stops calls of n batches, one after the other.
func (l *late) lead(n int) error {
	for k := range n {
		first, err := l.batch(2 * k)
		if err != nil {
			return err
		}
		l.second.Store(nil)
		before := l.calls.Load()
		l.first.Store(first)
		for i := 0; i < 1000 && l.calls.Load() == before && !l.over.Load(); i++ {
			runtime.Gosched()
		}
		stopped := foreign.Stop()
		first.batch.Release()
		second, err := l.batch(2*k + 1)
		if err != nil {
			return err
		}
		l.second.Store(second)
		for range 4000 { // changes the count that the other's exports change
			part, err := second.batch.Slice(0, 1)
			if err != nil {
				return err
			}
			part.Release()
		}
		if stopped {
			foreign.GoOn()
		}
		if second.producer.Ended() != 0 {
			return fmt.Errorf("producer %d was released while its batch is in use", second.value)
		}
		second.batch.Release()
	}
	l.over.Store(true)
	for k, p := range l.made {
		if !becomes(limit(), func() bool { return p.Ended() > 0 }) || p.Ended() != 1 {
			return fmt.Errorf("producer %d was released %d times", k, p.Ended())
		}
		p.Free()
	}
	return nil
}

var numberSchema = table{batch: true, names: []string{"c0"}, types: []string{"int64"}}.schema()

// batch imports a batch whose value is k.
func (l *late) batch(k int) (*numbered, error) {
	p, err := foreign.New(numberColumn(k), foreign.Place{Dev: device.CPUDevice()})
	if err != nil {
		return nil, err
	}
	l.made = append(l.made, p)
	b, err := cdevice.ImportRecordBatchWithSchema(p.Plain(), numberSchema)
	return &numbered{b, p, k}, err
}

// follow makes calls of the first batch, until the leader is done.
func (l *late) follow(what string) error {
	x := new(cdata.CArrowArray)
	for !l.over.Load() {
		n := l.first.Load()
		if n == nil {
			continue
		}
		if err := call(what, n, x); err != nil {
			l.over.Store(true)
			return err
		}
		l.calls.Add(1)
	}
	return nil
}

// disturb exports the second batch, and before there is one retains and releases the first, so that its count is always in another
// processor: the call waits for it most, and is stopped behind it.
func (l *late) disturb() error {
	x := new(cdata.CArrowArray)
	for !l.over.Load() {
		if n := l.second.Load(); n != nil {
			if err := call("export", n, x); err != nil {
				l.over.Store(true)
				return err
			}
		} else if n := l.first.Load(); n != nil {
			panicText(func() { // it may be released by now
				n.batch.Retain()
				n.batch.Release()
			})
		}
	}
	return nil
}

// call makes a call of a batch, which finds its value, or that it was released.
func call(what string, n *numbered, x *cdata.CArrowArray) (err error) {
	got := int64(-1)
	switch what {
	case "slice":
		var part *cdevice.RecordBatch
		if part, err = n.batch.Slice(0, 1); err == nil {
			err = cdevice.ExportRecordBatch(part, x, nil)
			part.Release()
		}
	case "read":
		var rec arrow.RecordBatch
		if rec, err = n.batch.HostView(background); err == nil {
			got = rec.Column(0).(*array.Int64).Value(0)
			rec.Release()
		}
	default:
		err = cdevice.ExportRecordBatch(n.batch, x, nil)
	}
	switch {
	case errors.Is(err, cdevice.ErrReleased):
		return nil
	case err != nil:
		return err
	case what != "read":
		got = foreign.Number(x)
		cdevice.ReleaseStruct(x)
	}
	if got != int64(n.value) {
		return fmt.Errorf("batch %d has the value %d", n.value, got)
	}
	return nil
}

// numberColumn is a struct array of one row and one column.
func numberColumn(k int) arrow.ArrayData {
	value := memory.NewBufferBytes(arrow.Int64Traits.CastToBytes([]int64{int64(k)}))
	column := array.NewData(arrow.PrimitiveTypes.Int64, 1, []*memory.Buffer{nil, value}, nil, 0, 0)
	return array.NewData(arrow.StructOf(fieldOf("c0", "int64")), 1, []*memory.Buffer{nil}, []arrow.ArrayData{column}, 0, 0)
}
