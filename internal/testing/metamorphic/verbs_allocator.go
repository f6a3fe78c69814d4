package metamorphic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/foreign"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Operations of the allocators that builders of arrow-go use.

func init() {
	register(
		&verb{name: "reallocate", weight: 4, draw: drawReallocate, expect: expectAlone, do: doReallocate},
		&verb{name: "build", weight: 5, draw: drawBuild, expect: expectBuild, do: doBuild},
	)
}

func drawReallocate(g *generator) (Op, bool) {
	return Op{Args: []string{allocatorNames[g.IntN(len(allocatorNames))], num(5 + g.IntN(30)), num(g.IntN(1000))}}, true
}

// piece is memory of an allocator, and what it must have.
type piece struct{ got, want []byte }

// pieces are those of an allocator that an operation has.
type pieces struct {
	*allocator
	random *rand.Rand
	all    []piece
}

// doReallocate allocates, changes and frees memory in some steps, after each of which all of it has what was written.
func doReallocate(r *run, o Op) string {
	a, err := r.allocator(o.arg(0))
	if err != nil {
		return err.Error()
	}
	p := &pieces{allocator: a, random: rand.New(rand.NewPCG(uint64(o.num(2)), 4))}
	for range o.num(1) {
		err = errors.Join(err, p.step(), p.check())
	}
	for _, c := range p.all {
		p.Free(c.got)
	}
	if a.live == nil {
		return seenError(err)
	}
	if n := a.live(); n != 0 {
		err = errors.Join(err, fmt.Errorf("%d allocations are left", n))
	}
	return seenError(errors.Join(err, p.refuses()))
}

// size draws how many bytes are allocated.
func (p *pieces) size() int {
	return []int{0, 1, 63, 64, 65, p.random.IntN(300), 4096, p.random.IntN(40_000)}[p.random.IntN(8)]
}

// tries is what the allocators of the library have beyond arrow-go's interface.
type tries interface {
	TryAllocate(ctx context.Context, size int) ([]byte, error)
	AllocateUninitialized(size int) []byte
}

// allocate returns zeros, or memory that may have anything.
func (p *pieces) allocate(n int) (piece, error) {
	t, ok := p.Allocator.(tries)
	way := p.random.IntN(3)
	switch {
	case ok && way == 0:
		got, err := t.TryAllocate(background, n)
		return piece{got, bytes.Clone(got)}, err
	case ok && way == 1:
		got := t.AllocateUninitialized(n)
		return piece{got, bytes.Clone(got)}, nil
	}
	return piece{p.Allocate(n), make([]byte, n)}, nil
}

func (p *pieces) step() error {
	i := p.random.IntN(len(p.all) + 1)
	switch {
	case i == len(p.all):
		made, err := p.allocate(p.size())
		if err != nil {
			return err
		}
		p.all = append(p.all, made)
	case p.random.IntN(3) == 0:
		p.Free(p.all[i].got)
		p.all = append(p.all[:i], p.all[i+1:]...)
		return nil
	default:
		n := p.size()
		want := make([]byte, n)
		copy(want, p.all[i].want)
		grown := p.Reallocate(n, p.all[i].got)
		if kept := len(p.all[i].want); p.live == nil && n > kept { // Go's leaves what was there
			copy(want[kept:], grown[kept:])
		}
		p.all[i] = piece{grown, want}
	}
	c := p.all[i]
	if len(c.got) != len(c.want) || len(c.got) > 0 && heap.AddressOf(c.got)%64 != 0 {
		return fmt.Errorf("%d bytes at %#x, not %d", len(c.got), heap.AddressOf(c.got), len(c.want))
	}
	if !bytes.Equal(c.got, c.want) {
		return fmt.Errorf("memory has %v, not %v", c.got, c.want)
	}
	for k := range c.got { // the next owner of this memory must not see these bytes
		c.got[k] = byte(p.random.Uint32() | 1)
	}
	copy(c.want, c.got)
	return nil
}

// check finds memory that was given out twice.
func (p *pieces) check() error {
	for _, c := range p.all {
		if !bytes.Equal(c.got, c.want) {
			return fmt.Errorf("memory has %v, not %v", c.got, c.want)
		}
	}
	return nil
}

// refused is a call that panics, and what the error says.
type refused struct {
	op   string
	size int
	f    func()
}

// refuses has the allocator refuse what it must, and say so by name.
func (p *pieces) refuses() error {
	kept := p.Allocate(10)
	defer p.Free(kept)
	foreignMemory := make([]byte, 100)
	calls := []refused{
		{"allocate", -1, func() { p.Allocate(-1) }},
		{"allocate", -1, func() { p.Reallocate(-1, kept) }},
		{"free", 100, func() { p.Free(foreignMemory) }},
		{"reallocate", 100, func() { p.Reallocate(20, foreignMemory) }},
	}
	if too := p.limit + 1; p.limit > 0 {
		calls = append(calls, refused{"allocate", too, func() { p.Allocate(too) }}, refused{"allocate", too, func() { p.Reallocate(too, kept) }})
	}
	for _, c := range calls {
		err := p.refusal(c.f)
		if err == nil || err.Op != c.op || err.Size != c.size || is(err, cudaalloc.ErrLimit) != (c.size > p.limit && p.limit > 0) {
			return fmt.Errorf("the allocator does not refuse to %s %d bytes as it must: %v", c.op, c.size, err)
		}
	}
	return nil
}

func drawBuild(g *generator) (Op, bool) {
	rows := 1 + g.IntN(60)
	i, j := g.bounds(rows)
	return Op{Args: []string{allocatorNames[g.IntN(len(allocatorNames))], num(rows), num(i), num(j), num(g.IntN(1000)), []string{"device", "cpu"}[g.IntN(2)]}}, true
}

// expectBuild: the memory of an exported batch also waits for the work that the program holds back.
func expectBuild(m *model, o Op) (string, bool) {
	return "ok", !m.holding && o.num(2) <= o.num(3) && o.num(3) <= o.num(1)
}

// builtTypes are those of the columns of a batch that builders make.
var builtTypes = []string{"int64", "utf8"}

// doBuild has builders make arrays, of which a part is exported and used by work that is held back. The allocator has the memory again
// after that work.
func doBuild(r *run, o Op) string {
	a, err := r.allocator(o.arg(0))
	if err != nil {
		return err.Error()
	}
	b, t, err := r.built(a, o)
	if err != nil {
		return err.Error()
	}
	held, err := r.holdStream(r.home)
	if err != nil {
		return err.Error()
	}
	used := o.arg(5) == "device" && a.dev.ID().Type != device.CPU
	if used {
		err = r.readBuilt(b, held)
	}
	err = errors.Join(err, r.exportBuilt(b, t))
	if err == nil && used && a.live() == 0 {
		err = errors.New("the memory was freed before the work that uses it")
	}
	err = errors.Join(err, held.fire(), held.Synchronize(background), held.end())
	if a.live != nil && !becomes(limit(), func() bool { return a.live() == 0 }) {
		err = errors.Join(err, fmt.Errorf("%d allocations are left", a.live()))
	}
	return seenError(err)
}

// built is a part of what builders have made, wrapped.
func (r *run) built(a *allocator, o Op) (*cdevice.RecordBatch, table, error) {
	rows, i, j := o.num(1), o.num(2), o.num(3)
	t := table{batch: true, names: []string{"c0", "c1"}, types: builtTypes, rows: j - i, values: make([][]string, 2)}
	builder := array.NewRecordBuilder(a.Allocator, t.schema())
	defer builder.Release()
	random := rand.New(rand.NewPCG(uint64(o.num(4)), 5))
	numbers, texts := builder.Field(0).(*array.Int64Builder), builder.Field(1).(*array.StringBuilder)
	for k := range rows {
		switch random.IntN(6) {
		case 0:
			builder.Reserve(random.IntN(200))
		case 1:
			numbers.Resize(k + 1 + random.IntN(50))
		}
		n := random.Int64()
		if n%5 == 0 {
			numbers.AppendNull()
			texts.AppendNull()
			continue
		}
		numbers.Append(n)
		texts.Append(fmt.Sprint("text ", n%1000))
	}
	rec := builder.NewRecordBatch()
	defer rec.Release()
	part := rec.NewSlice(int64(i), int64(j))
	defer part.Release()
	for k, c := range part.Columns() {
		t.values[k] = valuesOf(c)
	}
	b, err := r.wrapped(a, part, o.arg(5))
	return b, t, err
}

func (r *run) wrapped(a *allocator, rec arrow.RecordBatch, as string) (*cdevice.RecordBatch, error) {
	if as == "device" {
		return cdevice.WrapRecordBatch(rec, a.dev)
	}
	return cdevice.WrapRecordBatch(rec, r.at(cpu))
}

// readBuilt has work that is held back read the first column, as a consumer may on a stream of its own.
func (r *run) readBuilt(b *cdevice.RecordBatch, on *heldStream) error {
	column := b.Column(0)
	defer column.Release()
	to, err := r.gpus[0].Allocate(background, 8*b.NumRows(), on.Stream)
	if err != nil {
		return err
	}
	from := column.Buffers()[1] + device.Ptr(8*column.Offset())
	return errors.Join(r.gpus[0].Copy([]device.Range{{Dst: to.Ptr(), Src: from, Size: to.Size()}}, on.Stream), to.Free(on.Stream))
}

// exportBuilt exports a batch, reads the struct, and releases all, while work may still use the memory.
func (r *run) exportBuilt(b *cdevice.RecordBatch, t table) error {
	defer b.Release()
	x := foreign.NewDeviceArray()
	defer foreign.Forget(x)
	err := cdevice.ExportRecordBatch(b, x, nil)
	if err != nil {
		return err
	}
	dev, err := b.Device()
	if err != nil {
		return err
	}
	again, err := cdevice.ImportRecordBatchWithSchema(x, t.schema(), cdevice.WithDevice(dev))
	if err != nil {
		return err
	}
	defer again.Release()
	rec, err := again.HostView(background)
	return same(rec, err, t)
}
