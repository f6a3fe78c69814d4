package tree

import (
	"slices"

	"github.com/arrowdevice/arrowdevice/device"
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

// countWaiting counts bytes of memory that waits to be freed, until end is called.
func countWaiting(dev device.Device, bytes int64) (end func()) {
	c, ok := dev.(device.WaitCounter)
	if !ok {
		return func() {}
	}
	c.CountWaiting(bytes)
	return func() { c.CountWaiting(-bytes) }
}
