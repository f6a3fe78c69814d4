package hostpinned_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// The context of Unregister ends the wait for a stream that is stuck, and Unregister may be
// called again.
func TestGPUUnregisterIsGivenUp(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	b, err := syscall.Mmap(-1, 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	r, err := hostpinned.Register(gpu, b)
	require.NoError(t, err)
	s, err := gpu.NewStream()
	require.NoError(t, err)
	open := m.Hold(t, s)
	defer time.AfterFunc(5*time.Second, open).Stop()

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	begin := time.Now()
	assert.ErrorIs(t, r.Unregister(ctx), context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), 2*time.Second)
	open()
	require.NoError(t, r.Unregister(context.Background()))
	require.NoError(t, s.Close())
	require.NoError(t, syscall.Munmap(b))
}
