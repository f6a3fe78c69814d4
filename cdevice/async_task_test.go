package cdevice_test

import (
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

func TestAsyncProducerPassesMetadataOn(t *testing.T) {
	settles(t)
	rec := twoColumns(t)
	ofStream, ofBatch := arrow.NewMetadata([]string{"rows", ""}, []string{"5", "\x00\xff"}), arrow.NewMetadata([]string{"n"}, []string{"1"})
	with := wrap(t, rec).WithMetadata(ofBatch)
	defer with.Release()
	c := exported(t, background, cpeer.Behaviour{}, yields(t, rec.Schema(), yielding(nil, with)).WithMetadata(ofStream))
	require.NoError(t, c.WaitEvent(cpeer.OnSchema))
	c.Producer().Request(1)
	require.NoError(t, c.WaitTasks(1))
	got, err := schema.ReadMetadata("", c.Metadata())
	require.NoError(t, err)
	assert.True(t, ofStream.Equal(got), got)
	require.NoError(t, c.WaitReleased())
	assert.Zero(t, c.TaskMetadata(), "the end has none")
}

// TestAsyncTask is about the tasks of our producer.
func TestAsyncTask(t *testing.T) {
	t.Run("extracted once or dropped", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		before := cdevice.ReadStats()
		c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10}, repeated(t, rec, 3))
		require.NoError(t, c.WaitReleased())
		tasks := c.Tasks()
		assert.Equal(t, before.AsyncTasks+3, cdevice.ReadStats().AsyncTasks)
		assert.Equal(t, before.AsyncProducers+1, cdevice.ReadStats().AsyncProducers, "alive while there are tasks")
		assert.Zero(t, cpeer.Extract(&tasks[1], nil))
		out := garbageArray()
		assert.Zero(t, cpeer.Extract(&tasks[0], abi.As[abi.ArrowDeviceArray](out)))
		cdevice.ReleaseStruct(out)
		for range 2 {
			for i := range 2 {
				again := garbageArray()
				assert.Equal(t, errno.Code(syscall.EINVAL), cpeer.Extract(&tasks[i], abi.As[abi.ArrowDeviceArray](again)))
				assert.Equal(t, errno.Code(syscall.EINVAL), cpeer.Extract(&tasks[i], nil))
				assert.Zero(t, *again, "a released struct")
			}
		}
		assert.Equal(t, before.AsyncTasks+1, cdevice.ReadStats().AsyncTasks)
	})
	// A task can fail for lack of memory: the code is extract_data's, the text is on_error's unless the
	// handler was released before.
	t.Run("a failure is a code, and on_error has its text", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		for _, sent := range []int{1, 3} { // before and after the end was announced
			c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: int64(sent)}, repeated(t, rec, 3))
			require.NoError(t, c.WaitTasks(sent))
			if sent == 3 {
				require.NoError(t, c.WaitReleased())
			}
			restore := bridge.LimitBlocks(0)
			out := garbageArray()
			assert.Equal(t, errno.Code(syscall.ENOMEM), cpeer.Extract(&c.Tasks()[0], abi.As[abi.ArrowDeviceArray](out)))
			restore()
			assert.Zero(t, *out, "a released struct")
			require.NoError(t, c.WaitReleased())
			want := events(sent, cpeer.OnError, cpeer.Release)
			if sent == 3 {
				want = events(sent, cpeer.OnEnd, cpeer.Release)
			}
			assert.Equal(t, want, c.Events())
			if sent == 1 {
				code, text := c.Error()
				assert.Equal(t, errno.Code(syscall.ENOMEM), code)
				assert.NotEmpty(t, text)
			}
		}
	})
	// A task that is not wanted is not exported.
	t.Run("not exported if not wanted", func(t *testing.T) {
		settles(t)
		restore := bridge.LimitBlocks(1 << 20) // enough for the producer's struct
		defer restore()
		c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1}, repeated(t, twoColumns(t), 1))
		require.NoError(t, c.WaitReleased())
		bridge.LimitBlocks(0)
		assert.Zero(t, cpeer.Extract(&c.Tasks()[0], nil))
	})
}

// TestAsyncProducerLateRequests has requests of consumers after the end of their stream.
func TestAsyncProducerLateRequests(t *testing.T) {
	// A consumer that drains its queue after release asks for more with every task (Arrow
	// C++'s does); it may even do so when all tasks are gone.
	t.Run("while tasks are drained", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		for range 3 {
			c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10}, repeated(t, rec, 5))
			require.NoError(t, c.WaitReleased())
			for i := range c.Tasks() {
				c.Producer().Request(1)
				assert.Zero(t, cpeer.Extract(&c.Tasks()[i], nil))
				c.Producer().Request(1)
				require.NoError(t, c.Producer().RequestOnThreads(1, 4))
				c.Producer().Cancel()
			}
			assert.Equal(t, events(5, cpeer.OnEnd, cpeer.Release), c.Events())
		}
	})
	// A late call may come after any number of other streams: the struct is there, and no other's.
	t.Run("of ten thousand streams", func(t *testing.T) {
		settles(t)
		const streams = 10_000
		r := repeated(t, twoColumns(t), 0)
		all := make([]cpeer.Producers, 0, streams)
		seen := make(map[cpeer.Producers]bool, streams)
		for range streams {
			c := cpeer.NewConsumer(cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1})
			_, err := cdevice.ExportAsync(background, r, publicHandler(c))
			require.NoError(t, err)
			require.NoError(t, c.WaitReleased())
			require.False(t, seen[c.Producer()], "the struct of one stream is no other's")
			seen[c.Producer()] = true
			all = append(all, c.Producer())
			c.Free()
		}
		within.Eventually(t, "the end of all producers", func() bool { return bridge.Producers() == 0 })
		require.NoError(t, cpeer.CallAllOnThreads(all, 4))
		assert.Less(t, bridge.ProducerChunks(), int64(10), "the memory was given back")

		alive := exported(t, background, cpeer.Behaviour{}, repeated(t, twoColumns(t), 1))
		require.NoError(t, alive.WaitEvent(cpeer.OnSchema))
		require.NoError(t, cpeer.CallAllOnThreads(all, 4))
		assert.Equal(t, events(0), alive.Events(), "a late call is no other stream's")
		alive.Producer().Request(1)
	})
}
