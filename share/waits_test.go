//go:build linux

package share_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/share"
)

// WaitOpened returns with the last opener, whose batch is not released yet, and with Close.
func TestWaitOpened(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	b := numbers(t, allocator(t))
	defer b.Release()
	waiting := func(s *share.Shared) <-chan error {
		done := make(chan error, 1)
		go func() { done <- s.WaitOpened(background) }()
		return done
	}
	returned := func(what string, done <-chan error) {
		within.Seconds(t, what, func() error { return <-done })
	}

	p := opener(t, "")
	opened := issued(t, b)
	done := waiting(opened)
	require.Equal(t, "opened", opens(p, opened.Ticket()))
	returned("wait for the opener", done)
	assert.Equal(t, 1, opened.Openers())
	require.NoError(t, opened.Close())
	within.Context(t, "wait for the release", opened.Wait)
	require.Equal(t, "released", told(p, "release"))
	released(t, opened)

	closed := issued(t, b)
	done = waiting(closed)
	require.NoError(t, closed.Close())
	returned("wait for Close", done)

	left := issued(t, b)
	ctx, cancel := context.WithCancel(background)
	cancel()
	assert.ErrorIs(t, left.WaitOpened(ctx), context.Canceled)
	require.NoError(t, left.Close())
}
