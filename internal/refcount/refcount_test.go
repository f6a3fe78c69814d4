package refcount

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/live"
)

// panicOf is the error that f panics with.
func panicOf(t *testing.T, f func()) (err error) {
	t.Helper()
	defer func() {
		v := recover()
		require.NotNil(t, v, "no panic")
		err = v.(error)
	}()
	f()
	return nil
}

func TestCount(t *testing.T) {
	var c Count
	c.Init("RecordBatch")
	assert.True(t, c.Alive())
	assert.True(t, c.Sole())
	c.Retain()
	assert.False(t, c.Sole())
	assert.True(t, c.TryRetain())
	assert.False(t, c.Release())
	assert.False(t, c.Release())
	assert.True(t, c.Release())
	assert.False(t, c.Alive())
	assert.False(t, c.Sole())
	assert.False(t, c.TryRetain())
}

func TestMisusePanicsByName(t *testing.T) {
	var c Count
	c.Init("RecordBatch")
	c.Release()
	for range 2 { // a misuse changes nothing
		err := panicOf(t, c.Retain)
		assert.EqualError(t, err, "cdevice: RecordBatch: Retain after the last Release: invalid: already released")
		assert.ErrorIs(t, err, fielderr.ErrReleased)
		err = panicOf(t, func() { c.Release() })
		assert.EqualError(t, err, "cdevice: RecordBatch: Release of an object without references: invalid: already released")
		assert.False(t, c.Alive())
	}
	var zero Count
	assert.ErrorContains(t, panicOf(t, zero.Retain), "that no function of this package made")
}

// Release does not drop a reference that has an owner, until Disown.
func TestOwnedReferences(t *testing.T) {
	var c Count
	c.Init("RecordBatch")
	c.Own()
	assert.True(t, c.Alive())
	assert.True(t, c.Sole())
	c.Retain()
	c.Own() // of another owner
	const want = "cdevice: RecordBatch: Release without a Retain: it is borrowed from its reader, which releases it: invalid"
	assert.EqualError(t, panicOf(t, func() { c.Release() }), want)
	c.Retain()
	assert.False(t, c.Release())
	c.Disown()
	assert.False(t, c.Release())
	assert.EqualError(t, panicOf(t, func() { c.Release() }), want)
	c.Disown()
	assert.True(t, c.Release())
	assert.False(t, c.Alive())
}

// The last Release and a TryRetain race: an object that has ended stays ended.
func TestLastReleaseIsOne(t *testing.T) {
	for range 1000 {
		var c Count
		c.Init("x")
		var wg sync.WaitGroup
		ends := make(chan struct{}, 4)
		for i := range 4 {
			wg.Go(func() {
				if i > 0 && !c.TryRetain() {
					return
				}
				if c.Release() {
					ends <- struct{}{}
				}
			})
		}
		wg.Wait()
		assert.Len(t, ends, 1)
	}
}

func TestTracedObjectIsListedUntilItsLastRelease(t *testing.T) {
	defer live.Trace(live.Trace(true))
	var c Count
	c.InitTraced("RecordBatch")
	c.Retain()
	c.Release()
	objects := live.Objects()
	require.Len(t, objects, 1)
	assert.Equal(t, "RecordBatch", objects[0].Kind())
	c.Release()
	assert.Empty(t, live.Objects())
}
