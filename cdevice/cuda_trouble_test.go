package cdevice_test

import (
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// What the tests of trouble share: a stranger's stream that is stuck, batches that are not
// ready, memory that runs out.

const mib = 1 << 20

// misbehaviours are functions that do not return to their caller.
var misbehaviours = map[string]func(){
	"panic":  func() { panic("thrown by a test of callbacks") },
	"Goexit": runtime.Goexit,
}

// withAndWithoutPools runs test on two simulated machines.
func withAndWithoutPools(t *testing.T, o cudasim.Options, test func(*testing.T, *cudatest.Machine)) {
	for name, none := range map[string]bool{"pools": false, "no pools": true} {
		t.Run(name, func(t *testing.T) {
			o.NoPools = none
			test(t, cudatest.Simulated(t, o))
		})
	}
}

// numbers is a column of so many bytes, zero each.
func numbers(t *testing.T, bytes int) arrow.Array {
	t.Helper()
	values := memory.NewBufferBytes(make([]byte, bytes))
	data := array.NewData(arrow.PrimitiveTypes.Int64, bytes/8, []*memory.Buffer{nil, values}, nil, 0, 0)
	a := array.MakeFromData(data)
	data.Release()
	t.Cleanup(a.Release)
	return a
}

// copied is a copy of the column on the device, which is done.
func copiedTo(t *testing.T, column arrow.Array, dev device.Device) *cdevice.Array {
	t.Helper()
	a, err := copyArray(background, column, dev)
	require.NoError(t, err)
	require.NoError(t, a.Synchronize(background))
	return a
}

// releasedExport makes a copy that a consumer has, uses (it is given the address of the
// values), and releases: work that is not known uses it.
func releasedExport(t *testing.T, column arrow.Array, dev device.Device, use func(values device.Ptr) error) {
	t.Helper()
	a := copiedTo(t, column, dev)
	var out abi.ArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(a, abi.As[cdevice.CArrowDeviceArray](&out), nil))
	a.Release()
	require.NoError(t, use(device.Ptr(*abi.At[uintptr](out.Array.Buffers + 8))))
	cdevice.ReleaseCArrowDeviceArray(abi.As[cdevice.CArrowDeviceArray](&out))
}

// notReady is a column of text that another library has not filled yet, imported. The event
// ends with the producer's struct.
func notReady(t *testing.T, m *cudatest.Machine, dev *cudaalloc.Device) (a *cdevice.Array, open func()) {
	t.Helper()
	producer := m.Stranger(t, dev)
	text := pendingText(t, dev, newStream(t, dev))
	require.NoError(t, text.Synchronize(background))
	open = producer.Hold(t)
	word, destroy := producer.Event(t)
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportArray(text, out, schema))
	text.Release()
	cell := &word
	out.SyncEvent = addressOf(cell)
	a, err := cdevice.ImportArray(out, schema, cdevice.WithDevice(dev), cdevice.WithReleaser(func(release func()) {
		assert.NoError(t, destroy())
		*cell = 0
		release()
	}))
	require.NoError(t, err)
	assert.False(t, ready(t, a))
	return a, open
}

// wantText is what pendingText holds.
func wantText(t *testing.T) arrow.Array {
	return fromJSON(t, arrow.BinaryTypes.String, `["a","bb",null,"ccc"]`)
}
