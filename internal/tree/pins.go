package tree

import (
	"sync"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

// pins pins the Go objects of an owner for C, and stays reachable until free, even if the program forgets the owner.
type pins struct {
	bridge.Pins
	root handle.Word
}

// unused has pins that pin nothing.
var unused = sync.Pool{New: func() any { return new(pins) }}

func newPins() *pins {
	p := unused.Get().(*pins)
	p.root = handle.New(p)
	return p
}

// Release makes pins the value of a handle, whose end does not release it.
func (*pins) Release() {}

// free unpins the objects. There may be no pins.
func (p *pins) free() {
	if p == nil {
		return
	}
	handle.Take(p.root)
	p.Unpin()
	unused.Put(p)
}

// Pinner returns what pins Go objects until the last Release, for code that makes the owner, and pins many.
func (m *Owner) Pinner() *bridge.Pins {
	if m.pins == nil {
		m.pins = newPins()
	}
	return &m.pins.Pins
}

// Pin pins one Go object until the last Release. An address of C memory is allowed and costs almost
// nothing. Only code that makes the owner calls it.
func (m *Owner) Pin(pointer any) { m.Pinner().Pin(pointer) }

// PinMore is Pin for a caller that holds a reference: others may do so at the same time.
func (m *Owner) PinMore(pointer any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Pin(pointer)
}

// PinEvent returns the address of a native event handle, to which sync_event points. The handle is alone in its
// allocation: with a Go pointer beside it, cgo refuses to pass a struct of C that has the address.
func (m *Owner) PinEvent(handle uintptr) uintptr {
	cell := new(uintptr)
	*cell = handle
	m.Pin(cell)
	// mutant: return 0 * uintptr(unsafe.Pointer(cell))
	return uintptr(unsafe.Pointer(cell))
}
