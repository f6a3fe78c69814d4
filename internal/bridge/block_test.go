package bridge

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Until the value has ended, its export is counted: its end may be a producer's callback.
func TestExportsCountsUntilTheValueIsReleased(t *testing.T) {
	before := countsNow()
	var during int64
	a := oneArray(owner{func() { during = Exports() }})
	assert.Equal(t, before.plus(1), countsNow())
	CallArrayRelease(a)
	assert.Equal(t, before.exports+1, during)
	assert.Equal(t, before, countsNow())
}

func TestWithoutMemoryThereIsNoExport(t *testing.T) {
	before := countsNow()
	assert.Nil(t, NewExport(^uintptr(0)), "so much memory")
	defer LimitBlocks(BlockSize - 1)()
	assert.Nil(t, NewExport(BlockSize))
	assert.Equal(t, before, countsNow())
}

func TestCanceledExport(t *testing.T) {
	before := countsNow()
	block := NewExport(huge) // which is unmapped when it is freed
	block.Cancel()
	assert.Equal(t, before, countsNow())
}

// While tracing is on, an export is listed until its value has been released, even if that panics.
func TestTracedExport(t *testing.T) {
	defer live.Trace(live.Trace(true))
	defer func(before func(any, []byte)) { OnPanic = before }(OnPanic)
	OnPanic = func(any, []byte) {}
	before := len(live.Objects())
	var during int
	a := oneArray(owner{func() {
		during = len(live.Objects())
		panic("at the end of a value")
	}})
	assert.Len(t, live.Objects(), before+1)
	assert.Equal(t, "test", live.Objects()[before].Kind())
	CallArrayRelease(a)
	assert.Equal(t, before+1, during)
	assert.Len(t, live.Objects(), before)
}

// Two structs of a tree are released at the same time, one of them on a thread that Go has not seen, while other goroutines
// export: each value ends once, with its last struct.
func TestReleasesOnThreadsWhileGoExports(t *testing.T) {
	before := countsNow()
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range rounds {
				var ends atomic.Int64
				block := NewExport(BlockSize + familySize)
				block.Begin("test", 4, owner{func() { ends.Add(1) }})
				root, members := family(block)
				child := members[1]
				members[1].Release = 0
				var releases sync.WaitGroup
				releases.Go(func() { CallArrayRelease(&child) })
				releases.Go(func() { assert.NoError(t, cpeer.ReleaseOnThread(root)) })
				releases.Wait()
				require.EqualValues(t, 1, ends.Load())
			}
		})
	}
	all.Wait()
	assert.Equal(t, before, countsNow())
}
