//go:build linux

package share

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// panicked returns the error with which an allocator panics.
func panicked(t *testing.T, f func()) (err error) {
	t.Helper()
	defer func() {
		e, ok := recover().(*AllocationError)
		require.True(t, ok)
		err = e
	}()
	f()
	return nil
}

// More memory than the machine has is refused before the system takes pages for it.
func TestAllocatorTakesNoMoreThanThereIs(t *testing.T) {
	a := allocator(t)
	for _, size := range []int{1 << 46, 1 << 62} {
		err := panicked(t, func() { a.Allocate(size) })
		assert.ErrorIs(t, err, unix.ENOMEM)
		assert.ErrorContains(t, err, "bytes are available")
	}
	a.Free(a.Allocate(65 << 20))
}

// Reallocated memory begins with what it had, and is zero behind it, in its place or elsewhere.
func TestReallocatedMemoryIsZero(t *testing.T) {
	a := allocator(t)
	for name, sizes := range map[string][]int{
		"shorter, then longer": {100, 10, 100},
		"empty, then longer":   {100, 0, 100},
		"to the whole page":    {100, os.Getpagesize()},
		"elsewhere":            {100, 10, 3 * os.Getpagesize()},
	} {
		b := a.Allocate(sizes[0])
		kept := sizes[0]
		for _, size := range sizes[1:] {
			for i := range b {
				b[i] = 1
			}
			b = a.Reallocate(size, b)
			require.Len(t, b, size, name)
			kept = min(kept, size)
		}
		assert.Equal(t, append(bytes.Repeat([]byte{1}, kept), make([]byte, len(b)-kept)...), b, name)
		a.Free(b)
	}
}

// Memory of others is neither freed nor reallocated, and nothing is allocated for it.
func TestAllocatorRefusesForeignMemory(t *testing.T) {
	a, other := allocator(t), allocator(t)
	theirs := other.Allocate(10)
	defer other.Free(theirs)
	page := os.Getpagesize()
	own := a.Allocate(page + 100)
	before, _ := held(t)
	used := a.ReadStats().Held
	for _, b := range [][]byte{make([]byte, 5), theirs, own[page:]} {
		assert.ErrorContains(t, panicked(t, func() { a.Reallocate(100_000, b) }), "share: reallocate ")
		assert.ErrorContains(t, panicked(t, func() { a.Free(b) }), "not of this allocator")
	}
	assert.Equal(t, used, a.ReadStats().Held)
	now, _ := held(t)
	assert.Zero(t, since(before, now))
	own = a.Reallocate(3*page, own)
	a.Free(own)
}

// An owner before whom too many wait is not gone: an opener waits with them.
func TestOwnerWithAFullBacklog(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	name := anySocketName()
	listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	end := sync.OnceFunc(func() { _ = unix.Close(listener) })
	defer end()
	address := &unix.SockaddrUnix{Name: "@" + name}
	require.NoError(t, unix.Bind(listener, address))
	require.NoError(t, unix.Listen(listener, 1))
	for {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		require.NoError(t, err)
		defer unix.Close(s)
		if err := unix.Connect(s, address); errors.Is(err, unix.EAGAIN) {
			break
		}
		require.NoError(t, err)
	}
	ticket := forOwner(t, name)
	within.Context(t, "open", func(ctx context.Context) error {
		_, err := Open(ctx, ticket)
		return err
	})
	withTimeouts(handshakeTimeout, 20*time.Millisecond, func() {
		_, err := Open(background, ticket)
		assert.ErrorIs(t, err, unix.EAGAIN)
		assert.ErrorContains(t, err, "share: Open: the owner does not answer: ")
	})
	time.AfterFunc(20*time.Millisecond, end)
	within.Seconds(t, "open", func() error {
		_, err := Open(background, ticket)
		if !errors.Is(err, ErrOwnerGone) {
			return err
		}
		return nil
	})
}

func TestLimitOfAnAllocator(t *testing.T) {
	_, err := NewAllocator(WithLimit(-1))
	assert.EqualError(t, err, "share: NewAllocator: WithLimit(-1), want 0 or more: invalid")
	a := allocator(t, WithLimit(1<<20))
	b := a.Allocate(1)
	defer a.Free(b)
	for _, size := range []int{1 << 20, math.MaxInt - os.Getpagesize()} {
		err := panicked(t, func() { a.Allocate(size) })
		assert.EqualError(t, err, fmt.Sprintf("share: allocate %d bytes: the allocator's limit is reached: %d bytes are in use, of at most 1048576", size, os.Getpagesize()))
		assert.ErrorIs(t, err, ErrLimit)
	}
}
