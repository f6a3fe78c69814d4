package metamorphic

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Operations that read.

func init() {
	register(
		&verb{name: "read", weight: 16, draw: drawRead, expect: expectRead, do: doRead},
		&verb{name: "host view", weight: 6, draw: drawHostView, expect: expectHostView, do: doHostView},
		&verb{name: "read record", weight: 4, draw: drawReadRecord, expect: expectReadRecord, do: doReadRecord},
		&verb{name: "view", weight: 4, draw: drawView, expect: expectView, do: doView},
		&verb{name: "read view", weight: 5, draw: drawReadView, expect: expectReadView, do: doReadView},
		&verb{name: "count nulls", weight: 3, draw: drawCountNulls, expect: expectCountNulls, do: doCountNulls},
	)
}

// accessible reports whether the CPU can read memory of a device of this world.
func (r *run) accessible(id device.ID) bool {
	for _, p := range []place{home, other, cpu} {
		if d := r.at(p); d.ID() == id {
			return d.CPUAccessible()
		}
	}
	return id.Type.CPUAccessible()
}

// releaser is an object with a count of references.
type releaser interface {
	Retain()
	Release()
}

// keep holds the memory of a batch or an array until an object is released: in this world, the object itself does not hold it.
func (r *run) keep(name string, v releaser) {
	var part releaser
	var err error
	if b, ok := v.(*cdevice.RecordBatch); ok {
		part, err = b.Slice(0, 0)
	} else {
		part, err = v.(*cdevice.Array).Slice(0, 0)
	}
	must(err)
	r.kept[name] = append(r.kept[name], part)
}

// hows are ways to read a batch or an array.
var hows = []string{"host view", "copy to host", "as cpu", "columns", "views", "validated"}

func drawRead(g *generator) (Op, bool) {
	b := g.one(given(isReady), batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}, Args: []string{hows[g.IntN(len(hows))]}}, true
}

func expectRead(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || !b.ready() {
		return "", false
	}
	return b.String(), true
}

func doRead(r *run, o Op) string {
	if b, ok := r.values[o.On[0]].(*cdevice.RecordBatch); ok {
		return r.readBatch(b, o.arg(0))
	}
	return r.readArray(value[*cdevice.Array](r, o.On[0]), o.arg(0))
}

func (r *run) readBatch(b *cdevice.RecordBatch, how string) string {
	switch how {
	case "columns":
		return r.readColumns(b, "host view")
	case "views":
		return r.readColumns(b, "views")
	}
	return readWhole(r, b, how, r.record, seenRecord)
}

// whole is a *cdevice.RecordBatch or a *cdevice.Array, of which host views and copies of it on the host are of type H.
type whole[T, H any] interface {
	sliceable[T]
	DeviceID() device.ID
	AsCPU(context.Context) (T, error)
	HostView(context.Context) (H, error)
	CopyToHost(context.Context, memory.Allocator, ...cdevice.CopyOption) (H, error)
}

// readWhole reads all of a batch or an array, through one object of arrow-go.
func readWhole[T whole[T, H], H releaser](r *run, v T, how string, host func(T, bool) (H, error), seen func(H) string) string {
	switch how {
	case "validated":
		if err := v.ValidateFull(background); err != nil {
			return err.Error()
		}
	case "as cpu":
		if c, err := v.AsCPU(background); err == nil {
			defer c.Release()
			v = c
		} else if r.accessible(v.DeviceID()) {
			return err.Error()
		}
	}
	h, err := host(v, how == "copy to host")
	if err != nil {
		return err.Error()
	}
	defer h.Release()
	return seen(h)
}

// onHost returns a host view of memory that the CPU can access, else a copy.
func onHost[T whole[T, H], H any](r *run, v T, copied bool) (h H, view bool, err error) {
	if !copied {
		h, err = v.HostView(background)
		if r.accessible(v.DeviceID()) {
			return h, err == nil, err
		}
		if text := errorText(err); text != failed("ErrNotSupported") {
			return h, false, fmt.Errorf("HostView of memory of a GPU: %s: %w", text, err)
		}
	}
	h, err = v.CopyToHost(background, memory.DefaultAllocator)
	return h, false, err
}

// record returns a host view of a batch, or a copy.
func (r *run) record(b *cdevice.RecordBatch, copied bool) (arrow.RecordBatch, error) {
	rec, view, err := onHost(r, b, copied)
	if !view {
		return rec, err
	}
	for _, c := range rec.Columns() {
		r.lookAt(c.Data())
	}
	if with, ok := rec.(arrow.RecordBatchWithMetadata); ok && !with.Metadata().Equal(b.Metadata()) {
		return rec, fmt.Errorf("a host view with the metadata %v, not %v", with.Metadata(), b.Metadata())
	}
	return rec, nil
}

// host is record for an array.
func (r *run) host(a *cdevice.Array, copied bool) (arrow.Array, error) {
	arr, view, err := onHost(r, a, copied)
	if view {
		r.lookAt(arr.Data())
	}
	return arr, err
}

func (r *run) readColumns(b *cdevice.RecordBatch, how string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d rows", b.NumRows())
	for i := range b.NumCols() {
		a := b.Column(i)
		_, values, _ := strings.Cut(r.readArray(a, how), " rows")
		a.Release()
		fmt.Fprintf(&text, " %s%s", b.Schema().Field(i).Name, values)
	}
	return text.String()
}

func (r *run) readArray(a *cdevice.Array, how string) string {
	if how == "views" {
		return r.readArrayView(a)
	}
	return readWhole(r, a, how, r.host, seenArray)
}

func (r *run) readArrayView(a *cdevice.Array) string {
	v, err := a.View(background)
	if !r.accessible(a.DeviceID()) {
		if text := errorText(err); text != failed("ErrNotSupported") {
			return fmt.Sprintf("View of memory of a GPU: %s: %v", text, err)
		}
		return r.readArray(a, "copy to host")
	}
	if err != nil {
		return err.Error()
	}
	return r.seenView(v, a)
}

// seenView reads a view, which an array holds.
func (r *run) seenView(v cdevice.ArrayView, a *cdevice.Array) string {
	arr, err := r.host(a, false)
	if err != nil {
		return err.Error()
	}
	defer arr.Release()
	values, err := viewed(v, arr)
	if err != nil {
		return err.Error()
	}
	return table{rows: v.Len(), values: [][]string{values}}.String()
}

// viewed reads a view, and the array for types that views have no functions for.
func viewed(v cdevice.ArrayView, arr arrow.Array) ([]string, error) {
	at := func(i int) string { return arr.ValueStr(i) }
	switch arr.DataType().ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		s, err := v.Strings(background)
		if err != nil {
			return nil, err
		}
		at = s.At
	case arrow.INT64:
		s, err := cdevice.Values[int64](v)
		if err != nil {
			return nil, err
		}
		at = func(i int) string { return strconv.FormatInt(s[i], 10) }
	case arrow.INT32:
		s, err := cdevice.Values[int32](v)
		if err != nil {
			return nil, err
		}
		at = func(i int) string { return strconv.Itoa(int(s[i])) }
	case arrow.BOOL:
		s, err := v.Bools()
		if err != nil {
			return nil, err
		}
		at = func(i int) string { return strconv.FormatBool(s.At(i)) }
	}
	out := make([]string, v.Len())
	for i := range out {
		switch {
		case v.IsNull(i):
			out[i] = null
		default:
			out[i] = at(i)
		}
	}
	return out, nil
}

func drawHostView(g *generator) (Op, bool) {
	b := g.one(given(isReady), batchKind, arrayKind)
	if b == nil {
		return Op{}, false
	}
	return Op{Out: g.name(recordKind), On: []string{b.name}}, true
}

func expectHostView(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], batchKind, arrayKind)
	if b == nil || !b.ready() {
		return "", false
	}
	if !b.batch && b.types[0] == "null" { // its view has no memory, and holds none
		return "", false
	}
	m.add(o.Out, recordKind, *b, b.holds...)
	return "ok", true
}

// doHostView keeps the batch beside a copy, as the model has it.
func doHostView(r *run, o Op) string {
	if b, ok := r.values[o.On[0]].(*cdevice.RecordBatch); ok {
		if !r.accessible(b.DeviceID()) {
			r.keep(o.Out, b)
		}
		return made(r, o.Out)(r.record(b, false))
	}
	a := value[*cdevice.Array](r, o.On[0])
	if !r.accessible(a.DeviceID()) {
		r.keep(o.Out, a)
	}
	return made(r, o.Out)(r.host(a, false))
}

func drawReadRecord(g *generator) (Op, bool) {
	b := g.one(nil, recordKind)
	if b == nil {
		return Op{}, false
	}
	return Op{On: []string{b.name}}, true
}

func expectReadRecord(m *model, o Op) (string, bool) {
	b := m.get(o.On[0], recordKind)
	if b == nil {
		return "", false
	}
	return b.String(), true
}

func doReadRecord(r *run, o Op) string {
	switch v := r.values[o.On[0]].(type) {
	case arrow.RecordBatch:
		return seenRecord(v)
	case arrow.Array:
		return seenArray(v)
	}
	return "no record"
}

func drawView(g *generator) (Op, bool) {
	a := g.one(given(isReady), arrayKind)
	if a == nil {
		return Op{}, false
	}
	return Op{Out: g.name(viewKind), On: []string{a.name}}, true
}

func expectView(m *model, o Op) (string, bool) {
	a := m.get(o.On[0], arrayKind)
	if a == nil || !a.ready() {
		return "", false
	}
	v := m.add(o.Out, viewKind, object{table: a.table, at: a.at})
	v.known = a
	return "ok", true
}

func doView(r *run, o Op) string {
	a := value[*cdevice.Array](r, o.On[0])
	v, err := a.View(background)
	if !r.accessible(a.DeviceID()) {
		r.values[o.Out] = nil
		return strings.Replace(errorText(err), failed("ErrNotSupported"), "ok", 1)
	}
	return made(r, o.Out)(v, err)
}

func drawReadView(g *generator) (Op, bool) {
	v := g.one(given(func(v *object) bool { return v.known.(*object).refs > 0 }), viewKind)
	if v == nil {
		return Op{}, false
	}
	return Op{On: []string{v.name, v.known.(*object).name}}, true
}

func expectReadView(m *model, o Op) (string, bool) {
	v := m.get(o.On[0], viewKind)
	if v == nil || v.known.(*object).refs == 0 {
		return "", false
	}
	return v.String(), true
}

// doReadView reads a view while its array is held.
func doReadView(r *run, o Op) string {
	a := value[*cdevice.Array](r, o.On[1])
	v, ok := r.values[o.On[0]].(cdevice.ArrayView)
	if !ok {
		return r.readArray(a, "copy to host")
	}
	return r.seenView(v, a)
}

func drawCountNulls(g *generator) (Op, bool) {
	a := g.one(given(isReady), arrayKind)
	if a == nil {
		return Op{}, false
	}
	return Op{On: []string{a.name}}, true
}

func expectCountNulls(m *model, o Op) (string, bool) {
	a := m.get(o.On[0], arrayKind)
	if a == nil || !a.ready() || caseOf(a.types[0]).NoNulls {
		return "", false
	}
	nulls := 0
	for _, v := range a.values[0] {
		if v == null {
			nulls++
		}
	}
	return num(nulls), true
}

func doCountNulls(r *run, o Op) string {
	n, err := value[*cdevice.Array](r, o.On[0]).CountNulls(background)
	if err != nil {
		return err.Error()
	}
	return num(int(n))
}
