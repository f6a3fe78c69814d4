package metamorphic

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// Operations of DLPack tensors.

func init() {
	register(
		&verb{name: "tensor", weight: 7, draw: drawTensor, expect: expectTensor, do: doTensor},
		&verb{name: "make tensor", weight: 6, draw: drawMakeTensor, expect: expectMakeTensor, do: doMakeTensor},
		&verb{name: "read tensor", weight: 4, draw: drawReadTensor, expect: expectReadTensor, do: doReadTensor},
		&verb{name: "import tensor", weight: 4, draw: drawImportTensor, expect: expectImportTensor, do: doImportTensor},
		&verb{name: "import C tensor", weight: 3, draw: drawCTensor, expect: expectCTensor, do: doCTensor},
	)
	releasable[tensorKind] = releaseTensor
}

// tensor is a tensor in a form.
type tensor struct {
	versioned *dlpack.ManagedTensorVersioned // or nil
	legacy    *dlpack.ManagedTensor
	stream    device.Stream // on which it may be used; nil: anywhere
}

func (t *tensor) fields() *dlpack.Tensor {
	if t.versioned != nil {
		return &t.versioned.Tensor
	}
	return &t.legacy.Tensor
}

var numbers = []string{"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"}

// tensorText is the result of an export of the array as a tensor.
func (t table) tensorText() string {
	name := caseOf(t.types[0]).Type.Name()
	switch {
	case name != "fixed_size_list" && !slices.Contains(numbers, name):
		return failed("ErrNotImplemented")
	case slices.ContainsFunc(t.values[0], func(v string) bool { return strings.Contains(v, "null") }):
		return failed("ErrInvalid")
	}
	return "ok"
}

// onStream are the second arguments of exports: a stream of the consumer or none, and whether the consumer reads there at once.
var onStream = []string{"", "", "work", "read"}

func isNoExtension(o *object) bool { return caseOf(o.types[0]).Type.ID() != arrow.EXTENSION }

func drawTensor(g *generator) (Op, bool) {
	conditions := given(isReady, isNoExtension)
	if g.IntN(4) > 0 { // most others are refused alike
		conditions = append(conditions, func(o *object) bool { return o.tensorText() == "ok" })
	}
	a := g.one(conditions, arrayKind)
	if a == nil {
		return Op{}, false
	}
	stream := ""
	if a.at == home {
		stream = onStream[g.IntN(len(onStream))]
	}
	return Op{Out: g.name(tensorKind), On: []string{a.name}, Args: []string{[]string{"versioned", "legacy"}[g.IntN(2)], stream}}, true
}

func expectTensor(m *model, o Op) (string, bool) {
	a := m.get(o.On[0], arrayKind)
	if a == nil || !a.ready() || !isNoExtension(a) || o.arg(1) != "" && a.at != home {
		return "", false
	}
	text := a.tensorText()
	if text != "ok" {
		return text, true
	}
	m.add(o.Out, tensorKind, object{table: a.table, at: a.at}, a.holds...)
	for _, h := range a.holds {
		h.device = h.device || a.at != cpu
	}
	return "ok", true
}

func doTensor(r *run, o Op) string {
	return r.tensorOf(value[*cdevice.Array](r, o.On[0]), r.tables[o.On[0]], o)
}

// tensorOf exports an array in the form of the operation's first argument, on the stream of its second.
func (r *run) tensorOf(a *cdevice.Array, of object, o Op) string {
	want := of.tensorText()
	t := &tensor{}
	var opts []dlpack.ExportOption
	if o.arg(1) == "" {
		if err := a.Synchronize(background); err != nil {
			return err.Error()
		}
	} else {
		t.stream = r.work
		opts = append(opts, dlpack.WithStream(r.work))
	}
	if want == "ok" && !isAligned(a) {
		if text := errorText(t.export(a, o.arg(0), opts)); text != failed("ErrInvalid") {
			return "a tensor at an odd address: " + text
		}
		return r.alignedTensor(t, a, of.at, o, opts)
	}
	err := t.export(a, o.arg(0), opts)
	if text := errorText(err); want == "ok" && text == failed("ErrInvalid") && (!r.accessible(a.DeviceID()) || t.stream != nil) && strings.Contains(err.Error(), "CountNulls") {
		err = t.export(a, o.arg(0), append(opts, dlpack.WithoutNulls())) // nulls were not counted
	}
	if err == nil && o.arg(1) == "read" {
		if got := r.readTensor(t, of, false); got != of.String() { // at once, when its work may be pending
			return "a tensor of " + got
		}
	}
	r.values[o.Out] = t
	return errorText(err)
}

func (t *tensor) export(a *cdevice.Array, form string, opts []dlpack.ExportOption) (err error) {
	if form == "legacy" {
		t.legacy, err = dlpack.ExportLegacy(a, opts...)
	} else {
		t.versioned, err = dlpack.Export(a, opts...)
	}
	return err
}

// isAligned reports whether the elements of an array of numbers, or of lists of them, are at an address that a tensor can have.
func isAligned(a *cdevice.Array) bool {
	if a.Len() == 0 {
		return true
	}
	if a.NumChildren() > 0 {
		child := a.Child(0)
		defer child.Release()
		return isAligned(child)
	}
	size := device.Ptr(a.DataType().(arrow.FixedWidthDataType).Bytes())
	return a.Buffers()[1]%size == 0
}

// alignedTensor exports a copy, and keeps the array beside it as the model has it: until all work of its device is done.
func (r *run) alignedTensor(t *tensor, a *cdevice.Array, at place, o Op, opts []dlpack.ExportOption) string {
	dev := r.at(at)
	c, err := a.CopyTo(background, dev)
	if err != nil {
		return err.Error()
	}
	defer c.Release()
	if err := c.Synchronize(background); err != nil {
		return err.Error()
	}
	if at != cpu {
		s, err := dev.WrapStream(0)
		must(err)
		if err := a.UsedOn(s); err != nil {
			return err.Error()
		}
		must(s.Close()) // a stream that is closed when the memory is released stands for all
	}
	r.keep(o.Out, a)
	r.values[o.Out] = t
	return errorText(t.export(c, o.arg(0), append(opts, dlpack.WithoutNulls())))
}

func drawReadTensor(g *generator) (Op, bool) {
	d := g.one(nil, tensorKind)
	if d == nil {
		return Op{}, false
	}
	return Op{On: []string{d.name}, Args: []string{[]string{"here", "thread"}[g.IntN(2)]}}, true
}

func expectReadTensor(m *model, o Op) (string, bool) {
	d := m.get(o.On[0], tensorKind)
	if d == nil {
		return "", false
	}
	return d.String(), true
}

func doReadTensor(r *run, o Op) string {
	return r.readTensor(value[*tensor](r, o.On[0]), r.tables[o.On[0]], o.arg(0) == "thread")
}

func (r *run) readTensor(t *tensor, d object, thread bool) string {
	f := t.fields()
	shape := []int64{int64(d.rows)}
	dt := caseOf(d.types[0]).Type
	if list, ok := dt.(*arrow.FixedSizeListType); ok {
		shape, dt = append(shape, int64(list.Len())), list.Elem()
	}
	if !slices.Equal(f.Shape(), shape) {
		return fmt.Sprintf("the shape %v, not %v", f.Shape(), shape)
	}
	if got, want := device.Type(f.Device.Type), r.at(d.at).ID().Type; got != want {
		return "memory of " + got.String()
	}
	if t.versioned != nil && t.versioned.Flags != dlpack.FlagReadOnly {
		return fmt.Sprintf("flags %d", t.versioned.Flags)
	}
	return r.readNumbers(t, dt, d.table, thread)
}

// fetchOn reads on a stream, as a consumer of the tensor that named it does.
func fetchOn(dev device.Device, s device.Stream) foreign.Fetch {
	return func(address uintptr, size int) ([]byte, error) {
		out := make([]byte, size)
		if err := dev.Copy([]device.Range{{Dst: ptr(out), Src: device.Ptr(address), Size: int64(size)}}, s); err != nil {
			return nil, err
		}
		return out, s.Synchronize(background)
	}
}

// readNumbers reads the elements as an array of the table's type.
func (r *run) readNumbers(of *tensor, element arrow.DataType, t table, thread bool) string {
	f := of.fields()
	fetch := r.fetch(r.at(r.placeOf(f)), thread)
	if of.stream != nil && r.machine != nil {
		fetch = fetchOn(r.home, of.stream)
	}
	count := 1
	for _, n := range f.Shape() {
		count *= int(n)
	}
	size := element.(arrow.FixedWidthDataType).Bytes()
	if int(f.DType.Bits) != 8*size || f.DType.Lanes != 1 {
		return fmt.Sprintf("%d elements of %d bits", f.DType.Lanes, f.DType.Bits)
	}
	var bytes []byte
	if count > 0 {
		var err error
		if bytes, err = fetch(f.Data+uintptr(f.ByteOffset), count*size); err != nil {
			return err.Error()
		}
	}
	d := array.NewData(element, count, []*memory.Buffer{nil, memory.NewBufferBytes(bytes)}, nil, 0, 0)
	defer d.Release()
	if len(f.Shape()) > 1 {
		d = array.NewData(caseOf(t.types[0]).Type, t.rows, []*memory.Buffer{nil}, []arrow.ArrayData{d}, 0, 0)
		defer d.Release()
	}
	arr := array.MakeFromData(d)
	defer arr.Release()
	return seenArray(arr)
}

// placeOf is the place of the memory of a tensor: DLPack gives no numbers to pinned and managed memory.
func (r *run) placeOf(f *dlpack.Tensor) place {
	for _, p := range []place{home, other, cpu} {
		id := r.at(p).ID()
		if int32(id.Type) == f.Device.Type && (id.Type != device.CUDA || int32(id.Ordinal) == f.Device.ID) {
			return p
		}
	}
	return cpu
}

func drawImportTensor(g *generator) (Op, bool) {
	d := g.one(nil, tensorKind)
	if d == nil {
		return Op{}, false
	}
	return Op{Out: g.name(arrayKind), On: []string{d.name}}, true
}

func expectImportTensor(m *model, o Op) (string, bool) {
	d := m.get(o.On[0], tensorKind)
	if d == nil {
		return "", false
	}
	t := d.table
	t.origins = nil // its lists are of the tensor's shape
	m.add(o.Out, arrayKind, object{table: t, at: d.at}, d.holds...)
	m.release(d)
	return "ok", true
}

func doImportTensor(r *run, o Op) string {
	t, d := value[*tensor](r, o.On[0]), r.tables[o.On[0]]
	opts := []dlpack.ImportOption{dlpack.WithImportOptions(cdevice.WithDevice(r.at(d.at)))}
	if t.stream != nil {
		opts = append(opts, dlpack.WithStream(t.stream))
	}
	if t.versioned != nil {
		return made(r, o.Out)(dlpack.Import(t.versioned, opts...))
	}
	return made(r, o.Out)(dlpack.ImportLegacy(t.legacy, opts...))
}

func releaseTensor(r *run, o Op) string {
	t := value[*tensor](r, o.On[0])
	onThread := foreign.Way(o.num(0)) == foreign.Thread
	switch {
	case t.versioned != nil && onThread:
		return errorText(cpeer.DeleteOnThread(uintptr(unsafe.Pointer(t.versioned)), true))
	case t.versioned != nil:
		t.versioned.Delete()
	case onThread:
		return errorText(cpeer.DeleteOnThread(uintptr(unsafe.Pointer(t.legacy)), false))
	default:
		t.legacy.Delete()
	}
	return "ok"
}
