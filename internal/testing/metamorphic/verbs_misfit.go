package metamorphic

import (
	"errors"
	"slices"
	"sync"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
)

// Functions of Map and MapTo whose result does not fit the stream.

func init() {
	register(
		&verb{name: "map misfit", weight: 4, draw: drawMisfit(false), expect: expectMisfit, do: doMisfit},
		&verb{name: "map to misfit", weight: 3, draw: drawMisfit(true), expect: expectMisfit, do: doMisfit},
	)
}

// misfits are what the function returns at one item: a batch of other columns, of another type, on another device, one that was
// released, or one beside an error.
var misfits = []string{"columns", "type", "device", "released", "beside"}

// drawMisfit draws a Map, or a MapTo.
func drawMisfit(to bool) func(g *generator) (Op, bool) {
	return func(g *generator) (Op, bool) {
		s := drawReadable(g)
		if s == nil {
			return Op{}, false
		}
		o := Op{On: []string{s.name}, Args: []string{misfits[g.IntN(len(misfits))], num(1 + g.IntN(3)), num(g.IntN(100))}}
		if to {
			o.Out = g.name(s.kind)
		}
		return o, true
	}
}

// misfitOf is the end of the stream.
func misfitOf(o Op, batch bool) (e end, ok bool) {
	what := o.arg(0)
	switch {
	case what == "beside":
		return troubleEnd("trouble", o.num(2)), true
	case what == "device":
		return misfitEnd("device_type"), true
	case what == "columns" && !batch:
		return end{}, false
	case what == "type" && batch:
		return misfitEnd("RecordBatch.Column(0).type"), true
	case what == "type":
		return misfitEnd("Array.type"), true
	case batch:
		return misfitEnd("RecordBatch"), true
	}
	return misfitEnd("Array"), true
}

func expectMisfit(m *model, o Op) (string, bool) {
	s := m.get(o.On[0], readerKind, arrayReaderKind)
	if s == nil || !readable(s) || o.Out != "" && !derivable(s) || o.arg(0) == "type" && len(s.types) == 0 {
		return "", false
	}
	e, ok := misfitOf(o, s.kind == readerKind)
	if !ok || slices.ContainsFunc(s.types, func(name string) bool { return len(caseOf(name).Values) == 0 }) {
		return "", false
	}
	m.behind = true
	f := s.flow()
	if o.Out != "" {
		source := m.derive(o.Out, s, func(it item) item { return it })
		m.addReader(o.Out, s.kind, *s, source)
		f = source.known.(*flow)
	}
	if n := o.num(1); !f.over && n <= len(f.items) {
		m.cut(f, n-1, e)
	}
	return "ok", true
}

// stray is the producer of the result that does not fit, once the function has made one.
type stray struct {
	mu   sync.Mutex
	made *foreign.Producer
}

// produce makes the producer.
func (y *stray) produce(r *run, s spec, claims bool) (*cdevice.CArrowDeviceArray, error) {
	p, err := r.produce(s, cpu, "")
	if err != nil {
		return nil, err
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.made = p
	if claims {
		p.Claim(unlike)
	}
	return p.Device(), nil
}

// end waits until the result was released, and frees it.
func (y *stray) end(r *run, o Op) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.made == nil {
		return
	}
	if !becomes(limit(), func() bool { return y.made.Ended() > 0 }) || y.made.Ended() != 1 {
		r.note("%s: the result of %s was released %d times", r.Name, o, y.made.Ended())
		return
	}
	y.made.Free()
}

// strange returns the function: f makes the result of a spec.
func strange[T sliceable[T]](r *run, o Op, t table, f func(x *cdevice.CArrowDeviceArray, s spec) (T, error)) func(T) (T, error) {
	y := new(stray)
	r.later(func() { y.end(r, o) })
	s := spec{batch: t.batch, types: t.types, rows: 3, seed: 5}
	switch o.arg(0) {
	case "columns":
		s.types = append([]string{"int64"}, t.types...)
	case "type":
		s.types = append([]string{otherThan(t.types[0])}, t.types[1:]...)
	}
	n := 0
	return func(v T) (T, error) {
		if n++; n != o.num(1) {
			return v, nil
		}
		x, err := y.produce(r, s, o.arg(0) == "device")
		if err != nil {
			return v, err
		}
		made, err := f(x, s)
		switch {
		case err != nil:
		case o.arg(0) == "released":
			made.Release()
		case o.arg(0) == "beside":
			err = errors.New(troubleText(o.num(2)))
		}
		return made, err
	}
}

func otherThan(name string) string {
	if name == "int64" {
		return "utf8"
	}
	return "int64"
}

func doMisfit(r *run, o Op) string {
	t := r.tables[o.On[0]].table
	if o.Out != "" {
		r.share(o.Out, o.On[0])
	}
	if s, ok := r.values[o.On[0]].(*cdevice.RecordReader); ok {
		f := strange(r, o, t, func(x *cdevice.CArrowDeviceArray, s spec) (*cdevice.RecordBatch, error) {
			return cdevice.ImportRecordBatchWithSchema(x, s.table().schema())
		})
		if o.Out == "" {
			s.Map(f)
			return "ok"
		}
		to, err := s.MapTo(t.schema(), f)
		return r.madeReader(o.Out, to, err)
	}
	s := value[*cdevice.ArrayReader](r, o.On[0])
	f := strange(r, o, t, func(x *cdevice.CArrowDeviceArray, s spec) (*cdevice.Array, error) {
		return cdevice.ImportArrayWithType(x, caseOf(s.types[0]).Type)
	})
	if o.Out == "" {
		s.Map(f)
		return "ok"
	}
	to, err := s.MapTo(fieldOf("to", t.types[0]), f)
	return r.madeReader(o.Out, to, err)
}
