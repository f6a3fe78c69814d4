package tree

import (
	"slices"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/keep"
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

// afterWork calls f after the work. known is that of the memory.
func (u user) afterWork(known *keep.Known, f func()) {
	if s, ok := u.stream.(device.Waiter); ok {
		keep.AfterWork(s, known, f)
		return
	}
	keep.AfterWork(u.dev, known, f)
}

// AfterWork calls f, which frees size bytes, after the pending work of the device.
func AfterWork(dev device.Device, size int64, f func()) {
	counted := countWaiting(dev, size)
	keep.AfterWork(dev, nil, func() {
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
