package copyplan

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// body adds the buffers and children, except the validity bitmap.
func (a *gathered) body() error {
	switch {
	case a.kind == layout.Bits:
		return a.bits()
	case a.kind == layout.Fixed:
		return a.fixed()
	case a.kind == layout.Dictionary:
		if err := a.fixed(); err != nil {
			return err
		}
		return a.dictionary()
	case a.kind == layout.Binary32:
		return gatherBinary[int32](a)
	case a.kind == layout.Binary64:
		return gatherBinary[int64](a)
	case a.kind == layout.View:
		return a.views()
	case a.kind == layout.Struct:
		return a.fields()
	case a.isList(a.kind) && a.isList(a.out.Layout.Kind):
		return a.list()
	}
	return fielderr.New(fielderr.OpCuDF, "type", a.from.DataType(), "a type that cuDF has", arrow.ErrNotImplemented)
}

func (a *gathered) isList(k layout.Kind) bool { return k == layout.List32 || k == layout.FixedList }

// bytesOf returns the bytes of a buffer, which may be absent.
func bytesOf(d arrow.ArrayData, i int) []byte {
	if b := d.Buffers()[i]; b != nil {
		return b.Bytes()
	}
	return nil
}

func (a *gathered) bits() error {
	src := bytesOf(a.from, 1)
	dst, p := makePart[byte](layout.BitBytes(a.picked.length))
	a.out.Parts = append(a.out.Parts, p)
	return a.eachValid(func(at, i int64) error {
		if i >= 0 && bitutil.BitIsSet(src, int(i)) {
			bitutil.SetBit(dst, int(at))
		}
		return nil
	})
}

// fixed takes values of one width, or indices. Those of nulls are zero.
func (a *gathered) fixed() error {
	width := layout.ByteWidth(layout.StorageType(a.from.DataType()))
	src := bytesOf(a.from, 1)
	dst, p := makePart[byte](a.picked.length * width)
	a.out.Parts = append(a.out.Parts, p)
	return a.eachValid(func(at, i int64) error {
		if i >= 0 {
			copy(dst[at*width:(at+1)*width], src[i*width:])
		}
		return nil
	})
}

// dictionary takes all values of the dictionary. Their nulls are the indices' already.
func (a *gathered) dictionary() error {
	values := a.from.Dictionary()
	var all picked
	all.add(0, int64(values.Len()))
	plan, err := a.take(values, layout.ChildType(a.st, 0), &all)
	if err != nil {
		return fielderr.Within((&tree.Node{Layout: a.out.Layout}).ChildName(0), err)
	}
	if plan.Layout.Validity {
		plan.Parts[0], plan.nulls = part{}, 0
	}
	a.out.Children = []Plan{plan}
	return nil
}

// offsets are those of an array of lists or of texts, whose elements are within limit. Each element is taken once.
type offsets[T hostread.OffsetInt] struct {
	values []T
	limit  int64
	left   int64 // without the elements taken: ranges that overlap would be more than limit
}

func offsetsOf[T hostread.OffsetInt](d arrow.ArrayData, limit int) *offsets[T] {
	return &offsets[T]{arrow.GetData[T](bytesOf(d, 1)), int64(limit), int64(limit)}
}

// take returns the position and the size of element i.
func (o *offsets[T]) take(i int64) (first, count int64, err error) {
	first, last := int64(o.values[i]), int64(o.values[i+1])
	if first < 0 || last < first || last > o.limit {
		return 0, 0, fielderr.Invalid(fielderr.OpRead, fmt.Sprintf("offsets[%d]", i), fmt.Sprintf("%d to %d", first, last), fmt.Sprintf("an ascending range within 0 to %d", o.limit))
	}
	if o.left -= last - first; o.left < 0 {
		return 0, 0, fielderr.Invalid(fielderr.OpRead, fmt.Sprintf("offsets[%d]", i), fmt.Sprintf("%d to %d", first, last), "a range apart from those before")
	}
	return first, last - first, nil
}

func gatherBinary[T hostread.OffsetInt](a *gathered) error {
	data := bytesOf(a.from, 2)
	src := offsetsOf[T](a.from, len(data))
	dst, p := makePart[T](a.picked.length + 1)
	size := int64(0)
	err := a.eachValid(func(at, i int64) error {
		if i >= 0 {
			_, count, err := src.take(i)
			if err != nil {
				return err
			}
			size += count
		}
		dst[at+1] = T(size)
		return nil
	})
	if err != nil {
		return err
	}
	bytes, bytesPart := makePart[byte](size)
	a.out.Parts = append(a.out.Parts, p, bytesPart)
	return a.eachValid(func(at, i int64) error {
		if i >= 0 {
			copy(bytes[dst[at]:dst[at+1]], data[src.values[i]:])
		}
		return nil
	})
}

// views takes the views, which stay as they are, and all data buffers.
func (a *gathered) views() error {
	src := arrow.GetData[arrow.ViewHeader](bytesOf(a.from, 1))
	dst, p := makePart[arrow.ViewHeader](a.picked.length)
	a.out.Parts = append(a.out.Parts, p)
	for k := range a.from.Buffers()[2:] {
		a.out.Parts = append(a.out.Parts, madeOf(bytesOf(a.from, 2+k)))
	}
	return a.eachValid(func(at, i int64) error {
		if i >= 0 {
			dst[at] = src[i]
		}
		return nil
	})
}

// fields takes the elements of the fields of a struct. Those below a null are null.
func (a *gathered) fields() error {
	var below picked
	err := a.eachValid(func(_, i int64) error {
		if i < 0 {
			below.addNulls(1)
		} else {
			below.add(i, 1)
		}
		return nil
	})
	for k := range a.from.Children() {
		if err != nil {
			break
		}
		err = a.child(k, &below)
	}
	return err
}

// child takes elements of a child.
func (a *gathered) child(k int, p *picked) error {
	plan, err := a.take(a.from.Children()[k], layout.ChildType(a.st, k), p)
	if err != nil {
		return fielderr.Within(fielderr.Child(k), err)
	}
	a.out.Children = append(a.out.Children, plan)
	return nil
}

// list takes lists, of a fixed size or not, and makes them of the kind of the result. A null is an empty list, or
// one of nulls if the size is fixed.
func (a *gathered) list() error {
	elements := a.elements()
	to, fixed := a.st.(*arrow.FixedSizeListType)
	var below picked
	offsets, p := makePart[int32](a.picked.length + 1)
	if !fixed {
		a.out.Parts = append(a.out.Parts, p)
	}
	err := a.eachValid(func(at, i int64) error {
		switch {
		case i >= 0:
			first, count, err := elements(i)
			if err != nil {
				return err
			}
			if fixed && count != int64(to.Len()) {
				return fielderr.New(fielderr.OpFromCuDF, fmt.Sprintf("lists[%d].length", i), count, int64(to.Len()), arrow.ErrType)
			}
			below.add(first, count)
		case fixed:
			below.addNulls(int64(to.Len()))
		}
		offsets[at+1] = int32(below.length)
		return nil
	})
	if err != nil {
		return err
	}
	return a.child(0, &below)
}

// elements returns a function that returns the position and the number of elements of list i.
func (a *gathered) elements() func(i int64) (first, count int64, err error) {
	if st, ok := layout.StorageType(a.from.DataType()).(*arrow.FixedSizeListType); ok {
		width := int64(st.Len())
		return func(i int64) (int64, int64, error) { return i * width, width, nil }
	}
	return offsetsOf[int32](a.from, a.from.Children()[0].Len()).take
}
