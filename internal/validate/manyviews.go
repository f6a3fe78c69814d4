package validate

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Checks of all views of an array at once, as text.go has them for offsets: where one of them
// fails, which may be under a null, the views are checked one by one.

// inlineSize is the largest size of a value that is in its view.
const inlineSize = 12

// rawView is a view as bytes: the size, then the value, or its prefix, buffer and offset.
type rawView = [layout.ViewSize]byte

// unused has for each size of an inline value the bits of the two words of a view that must be zero.
var unused = func() (masks [inlineSize + 1][2]uint64) {
	for size := range masks {
		var behind rawView
		for i := 4 + size; i < len(behind); i++ {
			behind[i] = 0xff
		}
		masks[size] = [2]uint64{word(behind[:8]), word(behind[8:])}
	}
	return masks
}()

// usedRange is the part of a buffer that views refer to, and the sum of their sizes.
type usedRange struct {
	size               int64 // of the buffer
	first, last, total int64
}

// manyViews checks the views of one array.
type manyViews struct {
	*validator
	node *tree.Node
	utf8 bool
	used []usedRange // of the buffers; their sizes are copies, which do not change
}

// allViews reports whether all views are within their buffers, with the right prefix or padding, and
// UTF-8 if they are text. The sizes of the buffers were checked.
func (v *validator) allViews(n *tree.Node, views []arrow.ViewHeader, sizes []int64, text bool) (ok bool, err error) {
	if len(views) == 0 {
		return true, nil
	}
	m := manyViews{validator: v, node: n, utf8: text, used: make([]usedRange, len(sizes))}
	for i := range m.used {
		m.used[i] = usedRange{size: sizes[i], first: sizes[i]}
	}
	raw := unsafe.Slice((*rawView)(unsafe.Pointer(unsafe.SliceData(views))), len(views))
	if ok, err = m.parts(raw, m.fits); !ok || !text || err != nil {
		return ok, err
	}
	ok, ascii, err := m.texts()
	if !ok || ascii || err != nil {
		return ok, err
	}
	return m.parts(raw, m.wholeCharacters)
}

// parts reports whether do does so for all parts of the views.
func (m *manyViews) parts(views []rawView, do func([]rawView) bool) (ok bool, err error) {
	ok = true
	err = m.Parts(len(views), func(from, to int) error {
		if ok {
			ok = do(views[from:to])
		}
		return nil
	})
	return ok, err
}

// fits reports whether the views are within their buffers, with the right prefix or padding, and
// inline text is UTF-8. It records which bytes the others use.
func (m *manyViews) fits(views []rawView) bool {
	for i := range views {
		view := &views[i]
		size := binary.NativeEndian.Uint32(view[:4])
		if size <= inlineSize {
			low, high := word(view[:8]), word(view[8:])
			if low&unused[size][0]|high&unused[size][1] != 0 {
				return false
			}
			if m.utf8 && (low|high)&highBits != 0 && !inlineText(low>>32|high<<32, high>>32) {
				return false
			}
			continue
		}
		index, offset := place(view)
		if int32(size) < 0 || int32(offset) < 0 || uint64(index) >= uint64(len(m.used)) {
			return false
		}
		used, end := &m.used[index], int64(offset)+int64(size)
		if end > used.size {
			return false
		}
		prefix := abi.At[[4]byte](m.node.Buffers[2+index] + uintptr(offset))
		if *prefix != [4]byte(view[4:8]) {
			return false
		}
		used.first, used.last = min(used.first, int64(offset)), max(used.last, end)
		used.total += int64(size)
	}
	return true
}

// inlineText is validText for the bytes of two words, with zeros behind them.
func inlineText(low, high uint64) bool {
	for {
		marks := low & highBits
		if marks == 0 {
			if low, high = high, 0; low&highBits == 0 {
				return true
			}
			continue
		}
		ascii := bits.TrailingZeros64(marks) &^ 7
		low, high = low>>ascii|high<<(64-ascii), high>>ascii
		size := character(uint32(low))
		if size == 0 {
			return false
		}
		low, high = low>>(8*size)|high<<(64-8*size), high>>(8*size)
	}
}

// place returns the buffer of a view that is not inline, and the offset there.
func place(view *rawView) (index, offset uint32) {
	return binary.NativeEndian.Uint32(view[8:12]), binary.NativeEndian.Uint32(view[12:])
}

// texts reports whether the used ranges of all buffers are UTF-8, and whether they are ASCII.
func (m *manyViews) texts() (ok, ascii bool, err error) {
	ascii = true
	for i, used := range m.used {
		size := used.last - used.first
		if used.total == 0 {
			continue
		}
		if size > 2*used.total { // much of it is of no view: that may be anything, and costs more
			return false, false, nil
		}
		text := abi.Slice[byte](m.node.Buffers[2+i]+uintptr(used.first), int(size))
		n, ok, err := m.text(text)
		if !ok || err != nil {
			return false, false, err
		}
		ascii = ascii && n == len(text)
	}
	return true, ascii, nil
}

// wholeCharacters reports whether no view begins or ends within a character of its buffer, whose used
// range is UTF-8.
func (m *manyViews) wholeCharacters(views []rawView) bool {
	for i := range views {
		view := &views[i]
		size := binary.NativeEndian.Uint32(view[:4])
		if size <= inlineSize {
			continue
		}
		index, offset := place(view)
		used, end := &m.used[index], int64(offset)+int64(size)
		data := m.node.Buffers[2+index]
		if int64(offset) < used.first || end > used.last || !utf8.RuneStart(*abi.At[byte](data + uintptr(offset))) {
			return false
		}
		if end < used.last && !utf8.RuneStart(*abi.At[byte](data + uintptr(end))) {
			return false
		}
	}
	return true
}
