package layout

// simple reports whether arrays have as many buffers as the layout, of which the first is a validity
// bitmap, and at most the second has a size that follows from the struct alone.
func (l *Layout) simple() bool {
	switch l.Kind {
	case Bits, Fixed, Dictionary, Binary32, Binary64, List32, List64, FixedList, Struct:
		return true
	}
	return false
}

// SecondFits reports whether size bytes are enough for buffer 1 of a simple array with end =
// offset+length elements, of which there are fewer than 2^32.
func (a *Array) SecondFits(size, end int64) bool {
	return a.SecondSize(end) <= size
}

// SecondSize returns the least size in bytes of buffer 1 of a simple array with end = offset+length elements, if they are at
// most a.Most.
func (a *Array) SecondSize(end int64) int64 { return a.SecondBase + (a.SecondBits*end+7)/8 }

// count sets what is known of all arrays of the plan.
func (p *Plan) count() {
	p.Simple = true
	p.Pointers = len(p.Flat)
	for i := range p.Arrays {
		a := &p.Arrays[i]
		p.Simple = p.Simple && a.Layout.simple() && a.SecondBits < maxSecondBits
		p.Buffers += a.Layout.Buffers
		if a.Layout.Kind != Dictionary {
			p.Pointers += int(a.Children)
		}
	}
}

// maxSecondBits keeps the products of SecondFits within int64.
const maxSecondBits = 1 << 30
