package copyplan

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// gatherColumns copies the nodes to CPU memory and returns plans of their elements, as libcudf wants them: null
// lists and strings are empty, what is below a null struct is null, nulls of a dictionary's values are those of its
// indices. Lists take the kind that the types have.
func gatherColumns(ctx context.Context, t tree.Tree, types []arrow.DataType) ([]Plan, error) {
	if len(t.Nodes) == 0 {
		return nil, nil
	}
	columns, err := ToHost(ctx, t, memory.NewGoAllocator(), nil) // memory of Go: the plans keep it
	if err != nil {
		return nil, err
	}
	defer hostread.ReleaseAll(columns)
	g := gatherer{pace: &hostread.Pace{Ctx: ctx, Op: fielderr.OpCopy}}
	plans := make([]Plan, len(columns))
	for i, c := range columns {
		var all picked
		all.add(0, int64(c.Len()))
		if plans[i], err = g.take(c.Data(), types[i], &all); err != nil {
			return nil, fielderr.Within(t.Name(i), err)
		}
	}
	return plans, nil
}

// picked is a list of elements of an array, and of nulls between them.
type picked struct {
	runs   []run
	length int64
}

// run is count elements of an array, or nulls.
type run struct {
	first, count int64
	null         bool
}

// add adds elements [first, first+count).
func (p *picked) add(first, count int64) { p.append(run{first: first, count: count}) }

// addNulls adds nulls.
func (p *picked) addNulls(count int64) { p.append(run{count: count, null: true}) }

func (p *picked) append(r run) {
	p.length += r.count
	if k := len(p.runs) - 1; k >= 0 {
		last := &p.runs[k]
		if last.null && r.null || !last.null && !r.null && last.first+last.count == r.first {
			last.count += r.count
			return
		}
	}
	if r.count > 0 {
		p.runs = append(p.runs, r)
	}
}

// gatherer makes plans of elements of arrays in CPU memory, at offset zero as copies are. All parts are made.
type gatherer struct{ pace *hostread.Pace }

// gathered is an array that is being gathered.
type gathered struct {
	*gatherer
	from   arrow.ArrayData
	kind   layout.Kind // of from
	st     arrow.DataType
	picked *picked
	bitmap []byte // of the result
	out    Plan
}

// take returns a plan of the elements, as an array of the type.
func (g *gatherer) take(from arrow.ArrayData, dt arrow.DataType, p *picked) (Plan, error) {
	_, l := layout.Of(from.DataType())
	st, to := layout.Of(dt)
	a := gathered{gatherer: g, from: from, kind: l.Kind, st: st, picked: p, out: Plan{dtype: dt, Layout: to, Length: p.length}}
	if to.Kind == layout.Null {
		a.out.nulls = p.length
		return a.out, nil
	}
	if err := a.validity(); err != nil {
		return a.out, err
	}
	return a.out, a.body()
}

// each calls do for each element that is picked, with its position in the result; i is -1 for a null.
func (a *gathered) each(do func(at, i int64) error) error {
	at := int64(0)
	for _, r := range a.picked.runs {
		err := a.pace.Parts(int(r.count), func(from, to int) error {
			for k := int64(from); k < int64(to); k++ {
				i := r.first + k
				if r.null {
					i = -1
				}
				if err := do(at+k, i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		at += r.count
	}
	return nil
}

// eachValid calls do for each element of the result; i is -1 for those that are null.
func (a *gathered) eachValid(do func(at, i int64) error) error {
	return a.each(func(at, i int64) error {
		if !bitutil.BitIsSet(a.bitmap, int(at)) {
			i = -1
		}
		return do(at, i)
	})
}

// validity makes the bitmap, which is left out if there are no nulls.
func (a *gathered) validity() error {
	bitmap, p := makePart[byte](layout.BitBytes(a.picked.length))
	valid := validIn(a.from)
	inValues := a.validValues()
	count := int64(0)
	err := a.each(func(at, i int64) error {
		if i < 0 || !valid(i) {
			return nil
		}
		ok, err := inValues(i)
		if ok {
			bitutil.SetBit(bitmap, int(at))
			count++
		}
		return err
	})
	if a.out.nulls = a.picked.length - count; a.out.nulls == 0 {
		p = part{}
	}
	a.bitmap = bitmap
	a.out.Parts = append(a.out.Parts, p)
	return err
}

// validIn returns a function that reports whether an element is valid.
func validIn(d arrow.ArrayData) func(i int64) bool {
	b := d.Buffers()[0]
	if b == nil || b.Len() == 0 {
		return func(int64) bool { return true }
	}
	return func(i int64) bool { return bitutil.BitIsSet(b.Bytes(), int(i)) }
}

// validValues returns a function that reports whether the index of a valid element is that of a valid value of the
// dictionary; of other arrays, it returns true.
func (a *gathered) validValues() func(i int64) (bool, error) {
	if a.kind != layout.Dictionary {
		return func(int64) (bool, error) { return true, nil }
	}
	values := a.from.Dictionary()
	if values.DataType().ID() == arrow.NULL {
		return func(int64) (bool, error) { return false, nil }
	}
	valid := validIn(values)
	index := indexIn(a.from)
	return func(i int64) (bool, error) {
		v := index(i)
		if v >= uint64(values.Len()) {
			return false, fielderr.Invalid(fielderr.OpRead, fmt.Sprintf("indices[%d]", i), int64(v), fmt.Sprintf("0 to %d", values.Len()-1))
		}
		return valid(int64(v)), nil
	}
}

// indexIn returns a function that returns an index of a dictionary array; of one that is negative, a large number.
func indexIn(d arrow.ArrayData) func(i int64) uint64 {
	b := bytesOf(d, 1)
	switch layout.StorageType(d.DataType()).(*arrow.DictionaryType).IndexType.ID() {
	case arrow.INT8:
		return indices[int8](b)
	case arrow.UINT8:
		return indices[uint8](b)
	case arrow.INT16:
		return indices[int16](b)
	case arrow.UINT16:
		return indices[uint16](b)
	case arrow.INT32:
		return indices[int32](b)
	case arrow.UINT32:
		return indices[uint32](b)
	}
	return indices[uint64](b)
}

func indices[T int8 | uint8 | int16 | uint16 | int32 | uint32 | uint64](b []byte) func(i int64) uint64 {
	values := arrow.GetData[T](b)
	return func(i int64) uint64 { return uint64(int64(values[i])) }
}
