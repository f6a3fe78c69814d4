package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Calls with arguments that must be refused, and calls that describe an object without reading its memory.

func init() {
	register(
		&verb{name: "refuse", weight: 4, draw: drawRefuse, expect: expectRefuse, do: doRefuse},
		&verb{name: "observe", weight: 3, draw: drawObserve, expect: expectObserve, do: doObserve},
	)
}

// refusals are calls that return an error which wraps arrow.ErrInvalid, unless they name another.
var refusals = map[string]struct {
	call  func(r *run, b *cdevice.RecordBatch, t table) error
	other error // that is wrapped
	bare  bool  // the text differs
}{
	"slice behind the end":  {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return second(b.Slice(0, b.NumRows()+1)) }},
	"slice before the rows": {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return second(b.Slice(-1, 0)) }},
	"slice backwards":       {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return second(b.Slice(1, 0)) }},
	"select":                {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return second(b.Select(0, b.NumCols())) }},
	"select below zero":     {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return second(b.Select(-1)) }},
	"a name":                {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return second(b.ColumnIndex("no such column")) }, other: arrow.ErrKey},
	"view": {bare: true, call: func(r *run, b *cdevice.RecordBatch, _ table) error {
		if !r.accessible(b.DeviceID()) { // which comes first
			return second(b.Slice(-1, 0))
		}
		return second(b.ColumnView(background, b.NumCols()))
	}},
	"a view without ctx":    {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return second(b.HostView(noContext)) }},
	"a copy without ctx":    {call: func(r *run, b *cdevice.RecordBatch, _ table) error { return second(b.CopyTo(noContext, r.home)) }},
	"a copy to nowhere":     {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return second(b.CopyTo(background, nil)) }},
	"a copy by no option":   {call: func(r *run, b *cdevice.RecordBatch, _ table) error { return second(b.CopyTo(background, r.home, nil)) }},
	"no stream to use":      {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return b.UsedOn(nil) }},
	"no stream to wait":     {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return b.WaitOn(nil) }},
	"no stream of an event": {call: func(_ *run, b *cdevice.RecordBatch, _ table) error { return second(b.WithEvent(nil)) }},
	"export to nothing": {call: func(_ *run, b *cdevice.RecordBatch, _ table) error {
		return cdevice.ExportRecordBatch[cdevice.CArrowDeviceArray](b, nil, nil)
	}},
	"export of nothing": {call: func(*run, *cdevice.RecordBatch, table) error {
		x := foreign.NewArray()
		defer foreign.Forget(x)
		return cdevice.ExportRecordBatch[cdata.CArrowArray](nil, x, nil)
	}},
	"columns of two lengths": {call: func(_ *run, b *cdevice.RecordBatch, t table) error {
		first := b.Column(0)
		defer first.Release()
		short, err := first.Slice(1, first.Len())
		if err != nil {
			return err
		}
		defer short.Release()
		fields := []arrow.Field{fieldOf("a", t.types[0]), fieldOf("b", t.types[0])}
		return second(cdevice.RecordBatchFromArrays(arrow.NewSchema(fields, nil), first, short))
	}},
	"columns of another type": {call: func(_ *run, b *cdevice.RecordBatch, t table) error {
		first := b.Column(0)
		defer first.Release()
		another := "int64"
		if t.types[0] == another {
			another = "uint64"
		}
		return second(cdevice.RecordBatchFromArrays(arrow.NewSchema([]arrow.Field{fieldOf("a", another)}, nil), first))
	}},
	"fields without columns": {call: func(_ *run, b *cdevice.RecordBatch, t table) error {
		first := b.Column(0)
		defer first.Release()
		return second(cdevice.RecordBatchFromArrays(t.append(t).schema(), first))
	}},
	"columns without a schema": {call: func(_ *run, b *cdevice.RecordBatch, _ table) error {
		first := b.Column(0)
		defer first.Release()
		return second(cdevice.RecordBatchFromArrays(nil, first))
	}},
	"no column": {call: func(_ *run, b *cdevice.RecordBatch, _ table) error {
		return second(b.WithColumn(fieldOf("x", "int64"), nil))
	}},
	"a negative queue": {call: func(*run, *cdevice.RecordBatch, table) error {
		return second(cdevice.ImportAsync(background, new(cdevice.CArrowAsyncDeviceStreamHandler), -1))
	}},
	"an event of another device": {bare: true, call: func(r *run, b *cdevice.RecordBatch, _ table) error {
		if b.DeviceID().Type == device.CPU { // whose streams are alike
			return second(b.WithEvent(nil))
		}
		s, err := device.CPUDevice().NewStream()
		must(err)
		defer s.Close()
		return second(b.WithEvent(s))
	}},
}

// noContext is the context of a caller that has forgotten it.
var noContext context.Context

func second[T any](_ T, err error) error { return err }

var refusalNames = slices.Sorted(maps.Keys(refusals))

func drawRefuse(g *generator) (Op, bool) {
	b := g.one(given(isReady, hasRowsOf), batchKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}, Args: []string{refusalNames[g.IntN(len(refusalNames))]}}, true
}

func expectRefuse(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind)
	if _, ok := refusals[o.arg(0)]; b == nil || !ok || !b.ready() || !hasRows(b.table) {
		return "", false
	}
	return "refused", true
}

func doRefuse(r *run, o Op) string {
	row := refusals[o.arg(0)]
	b := value[*cdevice.RecordBatch](r, o.On[0])
	err := row.call(r, b, r.tables[o.On[0]].table)
	want := row.other
	if want == nil {
		want = arrow.ErrInvalid
	}
	if !errors.Is(err, want) || errors.Is(err, cdevice.ErrReleased) {
		return fmt.Sprintf("not refused: %v", err)
	}
	if !row.bare {
		r.note("%s", strings.ReplaceAll(err.Error(), b.DeviceID().String(), "its device"))
	}
	return "refused"
}

func drawObserve(g *generator) (Op, bool) {
	b := g.one(nil, batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}}, true
}

func expectObserve(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil {
		return "", false
	}
	return b.observed(), true
}

// observed describes a batch or an array without its values.
func (t table) observed() string {
	if t.batch {
		return fmt.Sprintf("%d rows, %d columns, %v", t.rows, len(t.types), t.fields())
	}
	return fmt.Sprintf("%d elements, %v, %d children", t.rows, caseOf(t.types[0]).Type, childrenOf(caseOf(t.types[0]).Type))
}

// fields are without the metadata, which is a batch's and not the schema's.
func (t table) fields() []string {
	out := make([]string, len(t.types))
	for i := range out {
		out[i] = fmt.Sprint(t.names[i], ": ", caseOf(t.types[i]).Type)
	}
	return out
}

func childrenOf(dt arrow.DataType) int {
	switch t := dt.(type) {
	case arrow.ExtensionType:
		return childrenOf(t.StorageType())
	case *arrow.DictionaryType:
		return 1
	case arrow.NestedType:
		return len(t.Fields())
	}
	return 0
}

func doObserve(r *run, o Op) string {
	x := r.tables[o.On[0]]
	at := r.at(x.at).ID()
	v := r.values[o.On[0]].(interface {
		DeviceID() device.ID
		Ready() (bool, error)
		NumBytes(context.Context) (int64, error)
		String() string
	})
	if v.DeviceID() != at {
		return "on " + v.DeviceID().String()
	}
	ready, err := v.Ready()
	if err != nil {
		return err.Error()
	}
	if x.held && ready && r.machine != nil {
		return "ready, although work is held back"
	}
	if !x.held {
		n, err := v.NumBytes(background)
		if err != nil || n < 0 {
			return fmt.Sprintf("%d bytes: %v", n, err)
		}
	}
	b, ok := v.(*cdevice.RecordBatch)
	if !ok {
		return observeArray(v.(*cdevice.Array))
	}
	if want := fmt.Sprintf("record batch on %s, %d rows: %s", at, x.rows, b.Schema()); b.String() != want {
		return b.String() + ", not " + want
	}
	if want := x.schema().Fields(); !slices.EqualFunc(want, b.Schema().Fields(), arrow.Field.Equal) {
		return fmt.Sprintf("the fields %v, not %v", b.Schema().Fields(), want)
	}
	names := make([]string, b.NumCols())
	for i, f := range b.Schema().Fields() {
		names[i] = fmt.Sprint(f.Name, ": ", f.Type)
		if k, err := b.ColumnIndex(f.Name); len(b.Schema().FieldIndices(f.Name)) == 1 && (k != i || err != nil) {
			return fmt.Sprintf("column %q is %d, not %d: %v", f.Name, k, i, err)
		}
	}
	return fmt.Sprintf("%d rows, %d columns, %v", b.NumRows(), b.NumCols(), names)
}

func observeArray(a *cdevice.Array) string {
	for i := range a.NumChildren() {
		c := a.Child(i)
		if a.DeviceID() != c.DeviceID() || c.Len() < 0 {
			return "a child on " + c.DeviceID().String()
		}
		c.Release()
	}
	return fmt.Sprintf("%d elements, %v, %d children", a.Len(), a.DataType(), a.NumChildren())
}
