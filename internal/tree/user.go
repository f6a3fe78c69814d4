package tree

import (
	"slices"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/watch"
)

// user is work that may use the memory of an owner: that on a stream, or, without one, all work of
// the device.
type user struct {
	dev    device.Device
	stream device.Stream
}

// maxUsers is how many streams an owner keeps apart. Beyond it, all work of their devices counts.
const maxUsers = 16

// withUser returns the users with one more.
func withUser(users []user, u user) []user {
	if _, ok := u.stream.(device.Waiter); !ok || len(users) >= maxUsers {
		u.stream = nil
	}
	if slices.Contains(users, u) || slices.Contains(users, user{dev: u.dev}) {
		return users
	}
	if u.stream == nil {
		users = slices.DeleteFunc(users, func(other user) bool { return other.dev == u.dev })
	}
	return append(users, u)
}

// after calls f after the work, for memory or for nothing, nil.
func (u user) after(m *Owner, f func()) {
	if s, ok := u.stream.(device.Waiter); ok {
		m.after(s, s.AfterWork, f)
		return
	}
	m.after(u.dev, u.dev.AfterWork, f)
}

// after calls f, which ends a use of the memory, by wait: after the work of a device or a stream, or after an
// event. m is nil for a use of no owner's memory.
func (m *Owner) after(of any, wait func(f func()), f func()) {
	seen := new(watch.Place)
	if m != nil {
		seen = &m.base().wait.seen
	}
	seen.AfterWork(of, wait, f)
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

// countWaiting counts bytes of memory that waits to be freed, until end is called.
func countWaiting(dev device.Device, bytes int64) (end func()) {
	c, ok := dev.(device.WaitCounter)
	if !ok {
		return func() {}
	}
	c.CountWaiting(bytes)
	return func() { c.CountWaiting(-bytes) }
}

// wait is what the end of an owner waits for.
type wait struct {
	users []user       // the work that may use the memory
	event device.Event // closed afterwards; nil: none
	// release, unless it is nil, gets the producer's callback to call: WithReleaser.
	release func(release func())
	seen    watch.Place
}

// afterUsers calls f after the work of the users that is pending now.
func (m *Owner) afterUsers(f func()) {
	users := m.wait.users
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
	event := m.wait.event
	if event == nil {
		f()
		return
	}
	defer CloseEvent(event)
	m.AfterEvent(event, f)
}
