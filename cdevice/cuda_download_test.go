package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// A batch that does not fit into one piece of page-locked memory is copied in several, which hold
// several columns or a part of one.
func TestCopyToPlainMemoryComesInPieces(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 7, 700_000, false) // 7 x 5.3 MiB
	defer rec.Release()
	there := kept(cdevice.CopyToDevice(background, rec, gpu))(t)
	some, err := there.Select(0, 2, 4, 6, 1, 3, 5) // so that they are no neighbours
	require.NoError(t, err)
	defer some.Release()
	require.NoError(t, gpu.Trim(background))
	locked := func() int64 { return m.Sim.Report().Live.HostBytes }
	before := locked()
	made, _ := calls(m, func() {
		back := kept(some.CopyToHost(background, nil))(t)
		for k, i := range []int{0, 2, 4, 6, 1, 3, 5} {
			assert.True(t, array.Equal(rec.Column(i), back.Column(k)), "column %d", i)
		}
	})
	assert.LessOrEqual(t, locked()-before, int64(24<<20))
	assert.LessOrEqual(t, made["cuMemcpyAsync"], 7+4)
	assert.LessOrEqual(t, made["cuEventRecord"], 4, "one behind each piece but the last")
}
