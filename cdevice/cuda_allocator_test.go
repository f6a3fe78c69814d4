package cdevice_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// An allocator of page-locked memory waits for memory that was freed and is still used. The
// context of the copy ends that wait too.
func TestCopyIntoPageLockedMemoryIsGivenUp(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{HostMemory: 8 << 20})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 2, 1000, false)
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	require.NoError(t, batch.Synchronize(background))
	require.NoError(t, gpu.Trim(background)) // staging holds none of it

	s := newStream(t, gpu)
	open := m.Hold(t, s)
	all, err := gpu.Pinned().Allocate(background, 8<<20, nil)
	require.NoError(t, err)
	require.NoError(t, all.Free(s)) // freed, and in use until the stream goes on
	ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = batch.CopyToHost(ctx, cudatest.Pinned(t, gpu))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), 1500*time.Millisecond)
	open()
	batch.Release()
}
