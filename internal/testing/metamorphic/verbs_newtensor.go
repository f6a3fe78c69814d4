package metamorphic

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// Operations that make tensors of nothing: of a part of a new array, and by a producer in C.

var tensorTypes = append([]string{"fixed_size_list", "fixed_size_list", "fixed_size_list"}, numbers...)

func drawMakeTensor(g *generator) (Op, bool) {
	rows := g.rows()
	i, j := g.bounds(rows)
	if g.IntN(2) == 0 {
		i, j = 0, rows
	}
	at, stream := []place{home, cpu}[g.IntN(2)], ""
	if at == home {
		stream = onStream[g.IntN(len(onStream))]
	}
	return Op{Out: g.name(tensorKind), Args: []string{
		[]string{"versioned", "legacy"}[g.IntN(2)], stream, tensorTypes[g.IntN(len(tensorTypes))], num(g.IntN(3)), num(rows), num(g.IntN(1000)),
		string(at), []string{"", "misaligned", "copy", "copy"}[g.IntN(4)], num(i), num(j),
	}}, true
}

// specOfTensor is that of the array of which a tensor is made.
func specOfTensor(o Op) spec {
	return spec{types: []string{o.arg(2)}, offset: o.num(3), rows: o.num(4), seed: uint64(o.num(5))}
}

func expectMakeTensor(m *model, o Op) (string, bool) {
	s, at := specOfTensor(o), place(o.arg(6))
	if !slices.Contains(tensorTypes, s.types[0]) || o.num(9) > s.rows || o.arg(1) != "" && at != home {
		return "", false
	}
	of := object{table: s.table().slice(o.num(8), o.num(9)), at: at}
	text := of.tensorText()
	if text != "ok" || o.arg(7) == "copy" { // then the array's own ends at once
		memory := m.add(o.Out+".array", memoryKind, object{at: at})
		memory.refs = 0
		m.ended[memory.name] = soon
	}
	if text != "ok" {
		return text, true
	}
	memory := m.memoryOf(m.add(o.Out, tensorKind, of))
	memory.device = at != cpu && o.arg(7) != "copy"
	return text, true
}

// doMakeTensor exports a part of an imported array, or of a copy of that.
func doMakeTensor(r *run, o Op) string {
	s, at, flavour := specOfTensor(o), place(o.arg(6)), o.arg(7)
	p, err := r.produce(s, at, flavour)
	if err != nil {
		return err.Error()
	}
	name := o.Out + ".memory"
	if _, made := r.tables[o.Out]; !made || flavour == "copy" {
		name = o.Out + ".array"
	}
	r.producers[name] = p
	a, err := cdevice.ImportArrayWithType(p.Device(), caseOf(s.types[0]).Type, cdevice.WithDevice(r.at(at)))
	if err != nil {
		return err.Error()
	}
	defer a.Release()
	part, err := a.Slice(int64(o.num(8)), int64(o.num(9)))
	if err != nil {
		return err.Error()
	}
	defer part.Release()
	if flavour == "copy" { // whose event is on a stream of its own
		if part, err = part.CopyTo(background, r.at(at)); err != nil {
			return err.Error()
		}
		defer part.Release()
	}
	return r.tensorOf(part, object{table: s.table().slice(o.num(8), o.num(9)), at: at}, o)
}

// tensorFaults are members of a tensor of C that an import refuses.
var tensorFaults = map[string]struct {
	spoil func(f *cpeer.TensorFields)
	want  string
}{
	"":         {func(*cpeer.TensorFields) {}, "ok"},
	"lanes":    {func(f *cpeer.TensorFields) { f.Lanes = 2 }, failed("ErrNotImplemented")},
	"bits":     {func(f *cpeer.TensorFields) { f.Bits = 3 }, failed("ErrNotImplemented")},
	"code":     {func(f *cpeer.TensorFields) { f.Code = 5 }, failed("ErrNotImplemented")},
	"shape":    {func(f *cpeer.TensorFields) { f.Shape = []int64{-1} }, failed("ErrInvalid")},
	"no shape": {func(f *cpeer.TensorFields) { f.WithoutShape = true }, failed("ErrInvalid")},
	"ndim":     {func(f *cpeer.TensorFields) { f.NDim = -1 }, failed("ErrInvalid")},
	"strides":  {func(f *cpeer.TensorFields) { f.Shape, f.Strides = []int64{3}, []int64{2} }, failed("ErrNotImplemented")},
	"data":     {func(f *cpeer.TensorFields) { f.Shape, f.Data = []int64{3}, 0 }, failed("ErrInvalid")},
	"major":    {func(f *cpeer.TensorFields) { f.Major = 2 }, failed("ErrNotImplemented")},
	"device":   {func(f *cpeer.TensorFields) { f.DeviceType, f.ID = 1, 5 }, failed("ErrInvalid")},
}

func drawCTensor(g *generator) (Op, bool) {
	fault := ""
	if g.IntN(2) == 0 {
		all := []string{"lanes", "bits", "code", "shape", "no shape", "ndim", "strides", "data", "major", "device"}
		fault = all[g.IntN(len(all))]
	}
	at, stream := []place{home, cpu}[g.IntN(2)], ""
	if at == home && g.IntN(2) == 0 {
		stream = "work"
	}
	return Op{Out: g.name(arrayKind), Args: []string{"batch", numbers[g.IntN(len(numbers))], "0", num(g.rows()), num(g.IntN(1000)), string(at), []string{"versioned", "legacy"}[g.IntN(2)], fault, stream}}, true
}

func expectCTensor(m *model, o Op) (string, bool) {
	s, fault := specOf(o), o.arg(7)
	if len(s.types) != 1 || !slices.Contains(numbers, s.types[0]) || fault == "major" && o.arg(6) == "legacy" || o.arg(8) != "" && place(o.arg(5)) != home {
		return "", false
	}
	if fault != "" {
		memory := m.add(o.Out+".memory", memoryKind, object{})
		memory.refs = 0
		m.ended[memory.name] = soon
		return tensorFaults[fault].want, true
	}
	t := s.table().column(0)
	t.values = [][]string{slices.Clone(t.values[0])}
	for i, v := range t.values[0] {
		if v == null { // a tensor has none
			t.values[0][i] = "0"
		}
	}
	memory := m.memoryOf(m.add(o.Out, arrayKind, object{table: t, at: place(o.arg(5))}))
	memory.exported = o.arg(8) != "" // it ends after the work of that stream's device, or of the stream
	return "ok", true
}

// doCTensor imports a tensor of C, whose memory is a producer's.
func doCTensor(r *run, o Op) string {
	s := specOf(o)
	flavour, opts := "", []dlpack.ImportOption{dlpack.WithImportOptions(cdevice.WithDevice(r.at(place(o.arg(5)))))}
	if o.arg(8) != "" { // the memory is being filled on that stream
		flavour, opts = "event", append(opts, dlpack.WithStream(r.work))
	}
	p, err := r.produce(s, place(o.arg(5)), flavour)
	if err != nil {
		return err.Error()
	}
	r.later(p.Free)
	dt := caseOf(s.types[0]).Type
	id := r.at(place(o.arg(5))).ID()
	f := cpeer.TensorFields{DeviceType: int32(id.Type), ID: int32(max(id.Ordinal, 0)), Code: codeOf(dt), Bits: uint8(dt.(arrow.FixedWidthDataType).BitWidth()), Lanes: 1, Shape: []int64{int64(s.rows)}}
	if s.rows > 0 {
		f.Data = uintptr(p.Column(0).Buffers[1])
	}
	tensorFaults[o.arg(7)].spoil(&f)
	t := cpeer.NewTensor(f)
	r.later(t.Free)
	over := false
	r.counts[o.Out+".memory"] = func() int {
		if t.Deleted() > 0 && !over {
			over = true
			p.End()
		}
		return t.Deleted()
	}
	if o.arg(6) == "legacy" {
		return made(r, o.Out)(dlpack.ImportLegacy(dlpack.ManagedTensorFromPtr(t.Legacy()), opts...))
	}
	return made(r, o.Out)(dlpack.Import(dlpack.ManagedTensorVersionedFromPtr(t.Versioned()), opts...))
}

func codeOf(dt arrow.DataType) uint8 {
	switch {
	case arrow.IsFloating(dt.ID()):
		return dlpack.Float
	case arrow.IsUnsignedInteger(dt.ID()):
		return dlpack.UInt
	}
	return dlpack.Int
}
