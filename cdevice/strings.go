package cdevice

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Strings are the elements of an array of text or of bytes, in its memory. It is valid as long as the
// [ArrayView] is.
type Strings struct {
	length int
	bytes  string  // of all elements, unless they are views
	small  []int32 // offsets into bytes, one more than elements
	large  []int64
	width  int // of each element, without offsets

	views   []arrow.ViewHeader
	buffers []uintptr // that views refer to
	sizes   []int64   // of the buffers
}

// Strings returns the elements of an array of type utf8, binary, large_utf8, large_binary, utf8_view, binary_view
// or fixed_size_binary. Another type is an error that names the column and wraps arrow.ErrType.
//
// It reads all offsets, or views, and checks that each element is within the bytes: no offset of a producer makes
// [Strings.At] read elsewhere. It does not read the bytes: [RecordBatch.ValidateFull] checks that utf8 is
// UTF-8. ctx ends the check of a long array.
func (v *ArrayView) Strings(ctx context.Context) (s Strings, err error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return Strings{}, err
	}
	if err := v.alive(); err != nil {
		return Strings{}, err
	}
	pace := hostread.Pace{Ctx: ctx, Op: fielderr.OpRead}
	switch n := &v.node; n.Layout.Kind {
	case layout.Binary32:
		s.small, s.bytes, err = bytesOf[int32](&pace, n)
	case layout.Binary64:
		s.large, s.bytes, err = bytesOf[int64](&pace, n)
	case layout.View:
		err = s.setViews(&pace, n, &v.valid)
	case layout.Fixed:
		err = s.setFixed(v)
	default:
		err = v.notStrings()
	}
	if err != nil {
		return Strings{}, fielderr.Within(v.name(v.index), err)
	}
	s.length = v.Len()
	return s, nil
}

func (v *ArrayView) notStrings() error {
	return fielderr.New(fielderr.OpRead, "type", v.node.Type, "text or bytes", arrow.ErrType)
}

// bytesOf returns the offsets and the bytes of an array of either width of offsets.
func bytesOf[T hostread.OffsetInt](pace *hostread.Pace, n *tree.Node) ([]T, string, error) {
	if n.Length == 0 {
		return nil, "", nil
	}
	var scratch [3]int64
	sizes, err := hostread.Sizes(scratch[:0], n, n.Storage())
	if err != nil {
		return nil, "", err
	}
	offsets := hostread.Values[T](n, 1, n.Length+1)
	if err := hostread.CheckOffsets(pace, offsets, sizes[2]); err != nil {
		return nil, "", err
	}
	return offsets, asString(abi.Slice[byte](n.Buffers[2], int(sizes[2]))), nil
}

// setFixed sets the elements of an array of type fixed_size_binary.
func (s *Strings) setFixed(v *ArrayView) error {
	dt, ok := v.node.Storage().(*arrow.FixedSizeBinaryType)
	if !ok {
		return v.notStrings()
	}
	s.width = dt.ByteWidth
	if first, n := int(v.node.Offset)*s.width, v.Len()*s.width; n > 0 {
		s.bytes = asString(abi.Slice[byte](v.node.Buffers[1], first+n)[first:])
	}
	return nil
}

func (s *Strings) setViews(pace *hostread.Pace, n *tree.Node, valid *Bitmap) error {
	if n.Length == 0 {
		return nil
	}
	last := len(n.Buffers) - 1
	s.buffers = n.Buffers[2:last]
	s.sizes = abi.Slice[int64](n.Buffers[last], len(s.buffers))
	s.views = hostread.Values[arrow.ViewHeader](n, 1, n.Length)
	return pace.Parts(len(s.views), func(from, to int) error {
		for i := from; i < to; i++ {
			if hostread.ViewFits(&s.views[i], s.sizes) || !valid.At(i) {
				continue
			}
			return fielderr.During(fielderr.OpRead, fielderr.Within(fmt.Sprintf("views[%d]", i), hostread.CheckView(&s.views[i], s.sizes)))
		}
		return nil
	})
}

// Len returns the number of elements.
func (s *Strings) Len() int { return s.length }

// At returns element i, without a copy: strings.Clone makes one that outlives the batch. Of a null it is any part of
// the array's bytes, usually empty. It panics if i is out of range, as indexing a slice does.
func (s *Strings) At(i int) string {
	if s.small != nil {
		return s.bytes[s.small[i]:s.small[i+1]]
	}
	return s.other(i)
}

// other is At for arrays without small offsets.
func (s *Strings) other(i int) string {
	switch {
	case s.large != nil:
		return s.bytes[s.large[i]:s.large[i+1]]
	case s.views != nil:
		return s.view(&s.views[i])
	}
	if uint(i) >= uint(s.length) {
		panic(errStringRange)
	}
	return s.bytes[i*s.width:][:s.width]
}

var errStringRange = errors.New("cdevice: index of Strings is out of range")

// view returns the element of a view; none for a view of a null that is of no buffer.
func (s *Strings) view(v *arrow.ViewHeader) string {
	switch {
	case v.IsInline() && v.Len() >= 0:
		return asString(v.InlineBytes())
	case !hostread.ViewFits(v, s.sizes):
		return ""
	}
	return asString(abi.Slice[byte](s.buffers[v.BufferIndex()]+uintptr(v.BufferOffset()), v.Len()))
}

func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
