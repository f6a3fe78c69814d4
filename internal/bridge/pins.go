package bridge

import (
	"runtime"

	"github.com/arrowdevice/arrowdevice/internal/live"
)

// Pins pins Go objects for C until Unpin, as a runtime.Pinner does, and can be used again. It keeps the runtime's
// lists: a new Pinner has a finalizer, which takes as long as an export, and the runtime keeps one for each processor.
//
// The runtime ends the process when it collects a Pinner that still pins. So Pins that pin must stay reachable: by a
// handle, even if the program forgets what they belong to. A missing release must be a leak, not a crash.
type Pins struct {
	pinners []runtime.Pinner
	count   int // of calls of Pin
}

// Pinned counts Pins that pin.
var Pinned live.Counter

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
	if p.count++; p.count == 1 {
		Pinned.Add(1)
	}
	p.pinners[i].Pin(pointer)
}

// Unpin unpins all objects.
func (p *Pins) Unpin() {
	if p.count == 0 {
		return
	}
	for i := range p.pinners[:min((p.count+perPinner-1)/perPinner, mostPinners)] {
		p.pinners[i].Unpin()
	}
	p.count = 0
	Pinned.Add(-1)
}
