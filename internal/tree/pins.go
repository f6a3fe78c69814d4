package tree

import (
	"runtime"
	"sync"
)

// Pins pins Go objects for C until Unpin, as a runtime.Pinner does, and can be used again. It keeps the runtime's
// lists: a new Pinner has a finalizer, which takes as long as an export, and the runtime keeps one for each processor.
type Pins struct {
	pinners []runtime.Pinner
	count   int // of calls of Pin
}

// perPinner is how many objects a runtime.Pinner pins without a list that grows, which it would drop at Unpin. That of
// the last of so many grows, since each costs an allocation and a finalizer when it is made.
const (
	perPinner   = 5
	mostPinners = 32
)

// Pin pins one object. An address of C memory is allowed, and costs little.
func (p *Pins) Pin(pointer any) {
	i := min(p.count/perPinner, mostPinners-1)
	if i == len(p.pinners) {
		p.pinners = append(p.pinners, runtime.Pinner{})
	}
	p.count++
	p.pinners[i].Pin(pointer)
}

// Unpin unpins all objects.
func (p *Pins) Unpin() {
	for i := range p.pinners[:min((p.count+perPinner-1)/perPinner, mostPinners)] {
		p.pinners[i].Unpin()
	}
	p.count = 0
}

// unused has Pins that pin nothing.
var unused = sync.Pool{New: func() any { return new(Pins) }}
