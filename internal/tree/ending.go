package tree

import (
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/watch"
)

// ending is what the end of an owner waits for.
type ending struct {
	users []user       // the work that may use the memory
	event device.Event // closed afterwards; nil: none
	// release, unless it is nil, gets the producer's callback to call: WithReleaser.
	release func(release func())
	waits   watch.Place // of this module, for the memory
}

// afterUsers calls f after the work of the users that is pending now.
func (m *Owner) afterUsers(f func()) {
	users := m.ending.users
	if len(users) == 0 {
		f()
		return
	}
	left := new(atomic.Int32)
	left.Store(int32(len(users)))
	counted := countWaiting(users[0].dev, m.bytes())
	for _, u := range users {
		u.after(m, func() {
			if left.Add(-1) == 0 {
				counted()
				f()
			}
		})
	}
}

// afterEvent calls f once the event is complete, and closes it.
func (m *Owner) afterEvent(f func()) {
	event := m.ending.event
	if event == nil {
		f()
		return
	}
	defer CloseEvent(event)
	m.AfterEvent(event, f)
}

// after calls f, which ends a use of the memory, by wait: after the work of a device or a stream, or after an
// event. m is nil for a use of no owner's memory.
func (m *Owner) after(of any, wait func(f func()), f func()) {
	waits := new(watch.Place)
	if m != nil {
		waits = m.Waits()
	}
	waits.AfterWork(of, wait, f)
}

// AfterEvent calls f, which ends a use of the memory, after the event.
func (m *Owner) AfterEvent(e device.Event, f func()) { m.after(e, e.OnComplete, f) }

// AfterWork calls f, which ends a use of the memory, after the pending work of the device.
func (m *Owner) AfterWork(dev device.Device, f func()) { m.after(dev, dev.AfterWork, f) }

// AfterWork calls f, which frees size bytes of no owner, after the pending work of the device.
func AfterWork(dev device.Device, size int64, f func()) {
	counted := countWaiting(dev, size)
	(*Owner)(nil).AfterWork(dev, func() {
		counted()
		f()
	})
}

// Waits has this module's waits for the memory, of which a simulated driver hears.
func (m *Owner) Waits() *watch.Place { return &m.base().ending.waits }
