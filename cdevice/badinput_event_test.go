package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Arrow C++ exports a batch without buffers, which may come from any device, as the CPU's,
// with the event of where it comes from. There is nothing to wait for.
func TestEventOfABatchWithoutBuffersIsIgnored(t *testing.T) {
	const event = 0x9001 // never read: no memory is mapped there
	type row struct {
		name string
		base string
		set  corruption
		want string
	}
	for _, r := range []row{
		{"null", "null", func(*foreignArray, *foreignNode) {}, ""},
		{"empty", "utf8/empty", func(*foreignArray, *foreignNode) {}, ""},
		{"empty, with children", "struct_nested/empty", func(*foreignArray, *foreignNode) {}, ""},
		{"int64", "int64", func(*foreignArray, *foreignNode) {}, "sync_event = 0x9001, want NULL for cpu"},
		{"below a null struct", "list", func(*foreignArray, *foreignNode) {}, "sync_event = 0x9001, want NULL for cpu"},
		{"a dictionary below an empty one", "dictionary_int8", both(length(0), nulls(-1)), "sync_event = 0x9001, want NULL for cpu"},
	} {
		for _, w := range []way{asArray, asBatch} {
			t.Run(r.name+"/"+string(w), func(t *testing.T) {
				checkLeaks(t)
				f := foreignCase(t, r.base, w)
				defer f.free()
				if w == asBatch && r.name == "a dictionary below an empty one" {
					f.root.Length = 0
				}
				r.set(f, f.base)
				f.device.SyncEvent = event
				testEventOf(t, f, r.want)
			})
		}
	}
	t.Run("a bitmap", func(t *testing.T) {
		checkLeaks(t)
		f := newForeign(t, fromJSON(t, arrow.StructOf(arrow.Field{Name: "n", Type: arrow.Null}), `[{"n":null}, null]`), asArray)
		defer f.free()
		f.device.Array.NullCount, f.goodDevice.Array.NullCount = 0, 0 // only the bitmap has the null
		f.base.setNull(0)
		f.device.SyncEvent = event
		testEventOf(t, f, "")
		f.restore()
		f.device.SyncEvent = event
		testEventOf(t, f, "sync_event = 0x9001, want NULL for cpu")
	})
}

func testEventOf(t *testing.T, f *foreignArray, want string) {
	t.Helper()
	got, err := f.importKnown()
	if want != "" {
		assert.Nil(t, got)
		assert.ErrorContains(t, err, "ArrowDeviceArray."+want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assertReleased(t, f, 1)
		return
	}
	require.NoError(t, err)
	view, copied := readAll(t, got)
	assert.NoError(t, view)
	assert.NoError(t, copied)
	out := garbageArray()
	exportOnly(t, got, out)
	assert.EqualValues(t, device.CPU, out.DeviceType)
	assert.Zero(t, out.SyncEvent, "it goes on without")
	cdevice.ReleaseStruct(out)
	got.Release()
	assertReleased(t, f, 1)
	f.device.Array = f.goodDevice.Array
	f.device.SyncEvent = 0x9001
	got, err = validated(f.importKnown())
	require.NoError(t, err)
	got.Release()
}
