package share

import (
	"fmt"
	"strings"

	"github.com/arrowdevice/arrowdevice/internal/protofield"
)

// path names a part of a ticket: "columns[3].children[0]".
type path []step

// step is a field of a message, or an element of a list.
type step struct {
	name string
	i    int // the index of the element; -1: no list
}

func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.name)
		if s.i >= 0 {
			fmt.Fprintf(&b, "[%d]", s.i)
		}
	}
	return b.String()
}

// in returns the path of a part of this one.
func (p path) in(name string, i int) path { return append(p, step{name, i}) }

// bad returns the error for a field of this part.
func (p path) bad(name string, got, want any) error {
	return badTicket(p.in(name, -1).String(), got, want)
}

// decoder keeps the first error.
type decoder struct {
	at     path
	budget protofield.Budget
	err    error
}

func (d *decoder) fail(name string, got, want any) {
	if d.err == nil {
		d.err = d.at.bad(name, got, want)
	}
}

// check keeps an error of package protofield about the current part.
func (d *decoder) check(err error) {
	if err == nil || d.err != nil {
		return
	}
	if len(d.at) > 0 {
		err = fmt.Errorf("%s: %w", d.at, err)
	}
	d.err = fmt.Errorf("share: ticket: %w: %w", err, ErrBadTicket)
}

// in decodes a part.
func (d *decoder) in(name string, i int, do func()) {
	d.at = d.at.in(name, i)
	do()
	d.at = d.at[:len(d.at)-1]
}

// message calls do for each field of a message, up to the first error.
func (d *decoder) message(b []byte, do func(protofield.Field)) {
	for f, err := range protofield.Fields(b) {
		if d.check(err); d.err != nil {
			return
		}
		do(f)
	}
}

// fixed copies bytes of a known number.
func (d *decoder) fixed(to []byte, f protofield.Field, name string) {
	if len(f.Bytes) != len(to) {
		d.fail(name, fmt.Sprintf("%d bytes", len(f.Bytes)), len(to))
		return
	}
	copy(to, f.Bytes)
}

// listOf returns an empty list with room for the fields of this number that a message has.
func listOf[T any](d *decoder, message []byte, n protofield.Number) []T {
	if d.err != nil {
		return nil
	}
	list, err := protofield.List[T](message, n, &d.budget)
	// mutant: _ = err
	d.check(err)
	return list
}
