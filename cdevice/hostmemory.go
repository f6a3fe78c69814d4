package cdevice

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// hostMemory is the allocator that the buffers of one host view return their memory to. Together
// with the view they hold one reference to the owner.
type hostMemory struct {
	owner  *tree.Owner
	users  atomic.Int64 // the view, and its buffers that are alive
	origin *live.Object
}

// start takes the reference to the owner for the view.
func (m *hostMemory) start(owner *tree.Owner) {
	m.owner, m.origin = owner, live.Add("HostView")
	m.users.Store(1)
}

func (m *hostMemory) drop() {
	if m.users.Add(-1) == 0 {
		m.origin.Remove()
		m.owner.Release()
	}
}

// abandon drops the owner while buffers are still alive, since no code can reach them.
func (m *hostMemory) abandon() {
	const never = math.MinInt64 / 2
	if m.users.Swap(never) > 0 {
		m.origin.Remove()
		m.owner.Release()
	}
}

func (m *hostMemory) Free([]byte) { m.drop() }

func (*hostMemory) Allocate(int) []byte { panic(errNotResizable) }

func (*hostMemory) Reallocate(int, []byte) []byte { panic(errNotResizable) }

var errNotResizable = errors.New("cdevice: memory of a host view cannot be resized")
