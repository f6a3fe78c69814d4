package schema

import (
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// errElsewhere ends a count at a struct that the reader will refuse.
var errElsewhere = errors.New("schema: malformed")

// checkSize returns an error if the tree of a root has more structs than the limit. It runs first
// and allocates nothing, since a few structs that share their children can make a tree of any size.
// It stops at a malformed struct, for which the reader then returns the error; whole reports whether
// there was none.
func checkSize(s *abi.ArrowSchema) (whole bool, err error) {
	c := counter{left: MaxNodes - 1}
	err = c.count(s, 0)
	if err == errElsewhere {
		return false, nil
	}
	return err == nil, err
}

// counter counts structs. It follows no pointer that the reader would not follow.
type counter struct{ left int }

func (c *counter) count(s *abi.ArrowSchema, depth int) error {
	if s.NChildren == 0 && s.Dictionary == 0 {
		return nil
	}
	row := formatAt(s.Format)
	if row == nil || s.NChildren < 0 || row.children != anyNumber && s.NChildren != int64(row.children) {
		return errElsewhere
	}
	if s.NChildren > int64(c.left) {
		return invalid(".n_children", s.NChildren, fewStructs)
	}
	n := int(s.NChildren)
	c.left -= n
	if n > 0 && s.Children == 0 {
		return errElsewhere
	}
	for i, child := range abi.Slice[uintptr](s.Children, n) {
		if err := c.below(child, depth); err != nil {
			return under(fmt.Sprintf(".children[%d]", i), err)
		}
	}
	if s.Dictionary == 0 {
		return nil
	}
	if !row.indices {
		return errElsewhere
	}
	if c.left--; c.left < 0 {
		return invalid(".dictionary", nil, fewStructs)
	}
	return under(".dictionary", c.below(s.Dictionary, depth))
}

func (c *counter) below(addr uintptr, depth int) error {
	if addr == 0 || depth == MaxDepth {
		return errElsewhere
	}
	s := abi.At[abi.ArrowSchema](addr)
	if s.Release == 0 {
		return errElsewhere
	}
	return c.count(s, depth+1)
}

// formatAt returns the row of the format at an address, or nil. It reads at most one byte more than
// the longest format without parameters has.
func formatAt(addr uintptr) *format {
	if addr == 0 {
		return nil
	}
	var head [maxHead + 1]byte
	n := 0
	for n < len(head) {
		b := *abi.At[byte](addr + uintptr(n))
		if b == 0 {
			break
		}
		head[n] = b
		n++
		if b == ':' {
			break
		}
	}
	return byText[string(head[:n])]
}
