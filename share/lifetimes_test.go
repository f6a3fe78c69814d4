//go:build linux

package share

import (
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// After many batches both processes have the descriptors, the mappings and the goroutines that they had before.
func TestGPUNothingIsLeftAfterManyBatches(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	plain, pinned := allocator(t), allocator(t, WithPinnedMemory(gpu))
	for name, c := range map[string]struct {
		make func(*testing.T) *cdevice.RecordBatch
		open string
	}{
		"host":   {func(t *testing.T) *cdevice.RecordBatch { return numbers(t, plain) }, "open"},
		"pinned": {func(t *testing.T) *cdevice.RecordBatch { return numbers(t, pinned) }, "open pinned"},
		"GPU":    {func(t *testing.T) *cdevice.RecordBatch { return numbersOnGPU(t, gpu) }, "open"},
	} {
		t.Run(name, func(t *testing.T) {
			p := opener(t, m.Path())
			cycles := func(n int) {
				for range n {
					s := shareAndRelease(t, c.make(t))
					require.Equal(t, "opened", told(p, c.open, hex.EncodeToString(s.Ticket())))
					requireEnd(t, p, s)
					require.NoError(t, s.Close())
				}
				require.NoError(t, gpu.Flush(background))
				require.Equal(t, "flushed", told(p, "flush"))
			}
			cycles(5) // what is made once
			var ours, theirs resources
			settle := func(ours, theirs *resources) {
				*ours = counted(t)
				_, err := fmt.Sscanf(told(p, "count"), "{%d %d %d}", &theirs.files, &theirs.mappings, &theirs.goroutines)
				require.NoError(t, err)
			}
			within.Eventually(t, "what is made once is at rest", func() bool {
				var a, b resources
				settle(&a, &b)
				settle(&ours, &theirs)
				return a == ours && b == theirs
			})
			cycles(200)
			var us, them resources
			within.Eventually(t, fmt.Sprintf("the owner has %+v, the opener %+v", ours, theirs), func() bool {
				settle(&us, &them)
				return noMore(us, ours) && noMore(them, theirs)
			})
			t.Logf("owner %+v, opener %+v", us, them)
		})
	}
}

// TestOwnerOfGPUMemory is another process that shares memory of a GPU, and is killed. With "pending", work of it is pending then.
func TestOwnerOfGPUMemory(t *testing.T) {
	p := otherprocess.Caller(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	stream, err := gpu.NewStream()
	require.NoError(t, err)
	if p.Read() == "pending" {
		m.Hold(t, stream)
	}
	there := numbersOnGPU(t, gpu, cdevice.WithStream(stream))
	p.Write(hex.EncodeToString(issued(t, there).Ticket()))
	p.Read()
}

// The opener of memory of a GPU outlives its owner: it is told, reads something or gets an error, and closes the memory.
func TestOwnerOfMemoryOfAGPUIsKilled(t *testing.T) {
	for _, work := range []string{"done", "pending"} {
		t.Run(work, func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{})
			owner, p := otherprocess.Start(t, "TestOwnerOfGPUMemory", m.Path()), opener(t, m.Path())
			owner.Write(work)
			ticket := owner.Read()
			require.Equal(t, "opened", told(p, "open", ticket))
			if work == "pending" {
				p.Write("read") // waits for the event of the owner
			}
			owner.Kill()
			if work == "pending" {
				t.Log(p.Read())
			}
			require.Equal(t, "gone", told(p, "owner gone"))
			t.Log(told(p, "read"))
			require.Equal(t, "released", told(p, "release"))
			require.Equal(t, "flushed", told(p, "flush"))
			assert.Contains(t, told(p, "open", ticket), ErrOwnerGone.Error())
			p.Write("end")
			p.End(0)
		})
	}
}

// The batch is held as long as one opener has it, even if the others have gone and the ticket was withdrawn.
func TestLastOpenerCounts(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	mem := allocator(t)
	s := shareAndRelease(t, numbers(t, mem), WithOpeners(3))
	first, second := opener(t, ""), opener(t, "")
	require.Equal(t, "opened", opens(first, s.Ticket()))
	require.Equal(t, "opened", opens(second, s.Ticket()))
	require.NoError(t, s.Close())
	require.Equal(t, "released", told(first, "release"))
	within.Eventually(t, "one opener is left", func() bool { return s.Openers() == 1 })
	requireHeld(t, s, 20*time.Millisecond)
	assert.NotZero(t, mem.ReadStats().Held)
	requireEnd(t, second, s)
}

// A process whose socket was closed before it has sent anything may have the memory mapped until it has ended.
func TestOpenerThatEndsIsWaitedFor(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := shareAndRelease(t, numbers(t, allocator(t)))
	p := opener(t, "")
	socket, request := requestOf(t, s.Ticket())
	require.Equal(t, "dropped after 1", told(p, "drop", socket, hex.EncodeToString(request)))
	requireHeld(t, s, 200*time.Millisecond)
	p.Kill()
	requireReleased(t, s)
}
