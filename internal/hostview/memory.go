package hostview

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
	owner *tree.Owner
	// users are the buffers that are alive, and unused, which the view holds: it makes buffers without an atomic
	// operation.
	users  int64 // atomic after start
	unused int64 // buffers that are not made, one at least; changed by the goroutine that makes them
	origin *live.Object
}

// start takes the reference to the owner for the view.
func (m *hostMemory) start(owner *tree.Owner) {
	const most = 1 << 40 // more buffers than there can be
	m.owner, m.origin = owner, live.Add("HostView")
	m.unused = most
	m.users = most
}

// end drops the view's hold, after which it makes no buffer.
func (m *hostMemory) end() { m.drop(m.unused) }

func (m *hostMemory) drop(users int64) {
	if atomic.AddInt64(&m.users, -users) == 0 {
		m.origin.Remove()
		m.owner.Release()
	}
}

// abandon drops the owner while buffers are still alive, since no code can reach them.
func (m *hostMemory) abandon() {
	const never = math.MinInt64 / 2
	if atomic.SwapInt64(&m.users, never) > 0 {
		m.origin.Remove()
		m.owner.Release()
	}
}

func (m *hostMemory) Free([]byte) { m.drop(1) }

func (*hostMemory) Allocate(int) []byte { panic(errNotResizable) }

func (*hostMemory) Reallocate(int, []byte) []byte { panic(errNotResizable) }

var errNotResizable = errors.New("cdevice: memory of a host view cannot be resized")
