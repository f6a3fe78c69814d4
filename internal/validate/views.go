package validate

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Checks of the contents of view arrays. Any number of views may share bytes; shared bytes are
// validated once.

func (v *validator) views(n *tree.Node, st arrow.DataType) error {
	views := hostread.Values[arrow.ViewHeader](n, 1, n.Length)
	sizes := abi.Slice[int64](n.Buffers[len(n.Buffers)-1], len(n.Buffers)-3)
	if ok, err := v.allViews(n, views, sizes, st.ID() == arrow.STRING_VIEW); ok || err != nil {
		return err
	}
	valid := hostread.IsValid(n)
	var shared []*sharedText
	if st.ID() == arrow.STRING_VIEW {
		var err error
		if shared, err = v.findShared(n, views, sizes, valid); err != nil {
			return err
		}
	}
	err := v.Parts(len(views), func(from, to int) error {
		for i := from; i < to; i++ {
			if !valid(i) {
				continue
			}
			value, err := hostread.ViewValue(n, &views[i], sizes)
			if err == nil {
				err = checkPadding(&views[i])
			}
			if err != nil {
				return fielderr.Within(fmt.Sprintf("views[%d]", i), err)
			}
			if st.ID() == arrow.STRING_VIEW {
				if err := v.viewText(i, &views[i], value, shared); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return v.sharedTexts(views, valid, shared)
}

// viewText checks the text of view i, or only its ends if other views share its bytes.
func (v *validator) viewText(i int, view *arrow.ViewHeader, value []byte, shared []*sharedText) error {
	ends := [2][]byte{value}
	if !view.IsInline() {
		if s := shared[view.BufferIndex()]; s != nil {
			var ok bool
			if ends, ok = s.add(int64(view.BufferOffset()), value); !ok {
				return notUTF8(i)
			}
		}
	}
	for _, end := range ends {
		if ok, err := v.ValidUTF8(end); err != nil {
			return err
		} else if !ok {
			return notUTF8(i)
		}
	}
	return nil
}

// checkPadding checks that the bytes behind a short value are zero, as views are compared whole.
func checkPadding(v *arrow.ViewHeader) error {
	if !v.IsInline() {
		return nil
	}
	for i, b := range (*[layout.ViewSize]byte)(unsafe.Pointer(v))[4+v.Len():] {
		if b != 0 {
			return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("bytes[%d]", 4+v.Len()+i), b, fmt.Sprintf("0 behind a value of %d bytes", v.Len()))
		}
	}
	return nil
}

// sharedText is a buffer whose bytes several views share, so that validating each of them whole
// would cost too much. The buffer is cut into blocks. A view is valid if three things are: what is
// before the first character of its first whole block, what is behind the first character of its
// last one, and each block in between, from its first character to that of the next. The ends are
// validated for each view, the blocks once.
type sharedText struct {
	first, last int64 // the bytes of the buffer that views use
	count       int64 // of views
	total       int64 // the sum of their sizes

	text  []byte // from first to last
	shift int    // a block has 1<<shift bytes
	// reach has for each block the end of the longest run of inner blocks of a view that begins
	// there; zero for none.
	reach []uint32
}

// findShared returns, for each buffer, nil unless views share more of it than not.
func (v *validator) findShared(n *tree.Node, views []arrow.ViewHeader, sizes []int64, valid func(int) bool) ([]*sharedText, error) {
	all := make([]sharedText, len(sizes))
	err := v.Parts(len(views), func(from, to int) error {
		for i := from; i < to; i++ {
			if !valid(i) {
				continue
			}
			if err := hostread.CheckView(&views[i], sizes); err != nil {
				return fielderr.Within(fmt.Sprintf("views[%d]", i), err)
			}
			if !views[i].IsInline() {
				all[views[i].BufferIndex()].use(int64(views[i].BufferOffset()), int64(views[i].Len()))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	shared := make([]*sharedText, len(sizes))
	for k := range all {
		if s := &all[k]; s.total > 2*(s.last-s.first) {
			s.begin(n.Buffers[2+k])
			shared[k] = s
		}
	}
	return shared, nil
}

func (s *sharedText) use(offset, size int64) {
	if s.count == 0 {
		s.first, s.last = offset, offset+size
	}
	s.first, s.last = min(s.first, offset), max(s.last, offset+size)
	s.count++
	s.total += size
}

// begin chooses blocks so small that the ends of all views together are less than the text, or
// so that 128 bytes are the most of an end, and so large that they are not many more than views.
func (s *sharedText) begin(addr uintptr) {
	size := s.last - s.first
	s.text = abi.Slice[byte](addr+uintptr(s.first), int(size))
	for s.shift = 7; size>>s.shift > 64*s.count; {
		s.shift++
	}
	s.reach = make([]uint32, size>>s.shift+1)
}

// blocks returns the first inner block of a value that begins at i of the text, and the block
// behind the last one; the same where there is none.
func (s *sharedText) blocks(i, size int64) (first, last int64) {
	block := int64(1) << s.shift
	if size < 2*block {
		return 0, 0
	}
	return (i + block - 1) >> s.shift, (i + size - 4) >> s.shift // a character begins at most 4 bytes before the end
}

// add records the inner blocks of a value, and returns its ends outside them. It reports false if
// the value is not UTF-8.
func (s *sharedText) add(offset int64, value []byte) (ends [2][]byte, ok bool) {
	i := offset - s.first
	first, last := s.blocks(i, int64(len(value)))
	if first == last {
		return [2][]byte{value}, true
	}
	begin, ok := hostread.FirstStart(s.text, int(first<<s.shift))
	end, ok2 := hostread.FirstStart(s.text, int(last<<s.shift))
	if !ok || !ok2 {
		return ends, false
	}
	s.reach[first] = max(s.reach[first], uint32(last))
	return [2][]byte{value[:begin-int(i)], value[end-int(i):]}, true
}

// sharedTexts validates the blocks that were added, and finds a value with one that is not valid.
func (v *validator) sharedTexts(views []arrow.ViewHeader, valid func(int) bool, shared []*sharedText) error {
	bad, found := make([]int64, len(shared)), false
	for k, s := range shared {
		bad[k] = -1
		if s == nil {
			continue
		}
		var err error
		if bad[k], err = v.badBlock(s); err != nil {
			return err
		}
		found = found || bad[k] >= 0
	}
	if !found {
		return nil
	}
	return v.Parts(len(views), func(from, to int) error {
		for i := from; i < to; i++ {
			view := &views[i]
			if !valid(i) || view.IsInline() || bad[view.BufferIndex()] < 0 {
				continue
			}
			s := shared[view.BufferIndex()]
			first, last := s.blocks(int64(view.BufferOffset())-s.first, int64(view.Len()))
			if block := bad[view.BufferIndex()]; first <= block && block < last {
				return notUTF8(i)
			}
		}
		return nil
	})
}

// badBlock returns the first block of a value that is not valid, or -1.
func (v *validator) badBlock(s *sharedText) (int64, error) {
	until := uint32(0)
	for block, reach := range s.reach {
		if err := v.Spend(1); err != nil {
			return -1, err
		}
		if until = max(until, reach); uint32(block) >= until {
			continue
		}
		begin, ok := hostread.FirstStart(s.text, block<<s.shift)
		end, ok2 := hostread.FirstStart(s.text, (block+1)<<s.shift)
		if ok && ok2 {
			var err error
			if ok, err = v.ValidUTF8(s.text[begin:end]); err != nil {
				return -1, err
			}
		}
		if !ok || !ok2 {
			return int64(block), nil
		}
	}
	return -1, nil
}
