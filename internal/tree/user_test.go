package tree

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

// waiter is a stream that can be asked for its work; plain is one that cannot.
type (
	waiter struct {
		device.Stream
		_ int // so that two have two addresses
	}
	plain struct{ device.Stream }
)

func (*waiter) AfterWork(f func()) { f() }

// The streams that an owner keeps apart are few, and all work of a device includes that on its streams.
func TestUsersAreFew(t *testing.T) {
	dev := device.CPUDevice()
	all, one := user{dev: dev}, user{dev, new(waiter)}
	users := withUser(withUser(nil, one), one)
	assert.Equal(t, []user{one}, users, "the same stream again")
	assert.Equal(t, []user{all}, withUser(users, all))
	assert.Equal(t, []user{all}, withUser([]user{all}, one))
	assert.Equal(t, []user{all}, withUser(nil, user{dev, plain{}}), "a stream that cannot be asked")
	users = nil
	for range maxUsers {
		users = withUser(users, user{dev, new(waiter)})
	}
	assert.Len(t, users, maxUsers)
	assert.Equal(t, []user{all}, withUser(users, user{dev, new(waiter)}), "too many")
}
