package cdevice_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// tagged is an extension type over any storage.
type tagged struct {
	arrow.ExtensionBase
	tag string
}

type taggedArray struct{ array.ExtensionArrayBase }

func (*tagged) ArrayType() reflect.Type { return reflect.TypeFor[taggedArray]() }
func (*tagged) ExtensionName() string   { return "arrowdevice.test.tagged" }
func (t *tagged) Serialize() string     { return t.tag }
func (t *tagged) String() string        { return fmt.Sprintf("tagged(%s)<%s>", t.tag, t.Storage) }

func (t *tagged) ExtensionEquals(other arrow.ExtensionType) bool {
	o, ok := other.(*tagged)
	return ok && o.tag == t.tag && arrow.TypeEqual(o.Storage, t.Storage)
}

func (*tagged) Deserialize(storage arrow.DataType, tag string) (arrow.ExtensionType, error) {
	return &tagged{arrow.ExtensionBase{Storage: storage}, tag}, nil
}

// asTagged is an array of the extension type over arr's data; the caller
// releases it. arrow-go's own NewExtensionArrayWithStorage drops the dictionary.
func asTagged(t *testing.T, arr arrow.Array) arrow.Array {
	t.Helper()
	dt := &tagged{arrow.ExtensionBase{Storage: arr.DataType()}, "blue"}
	data := arr.Data().(*array.Data)
	dictionary, _ := data.Dictionary().(*array.Data)
	made := array.NewDataWithDictionary(dt, data.Len(), data.Buffers(), data.NullN(), data.Offset(), dictionary)
	if dictionary == nil {
		made.Release()
		made = array.NewData(dt, data.Len(), data.Buffers(), data.Children(), data.NullN(), data.Offset())
	}
	defer made.Release()
	return array.NewExtensionData(made)
}

// Extension types travel over every storage type, registered or not.
func TestExtensionsOverEveryStorage(t *testing.T) {
	register := func() { require.NoError(t, arrow.RegisterExtensionType(&tagged{})) }
	unregister := func() { require.NoError(t, arrow.UnregisterExtensionType("arrowdevice.test.tagged")) }
	eachCase(t, func(t *testing.T, storage arrow.Array) {
		if storage.DataType().ID() == arrow.EXTENSION {
			return // C has no extension of an extension: see the next test
		}
		ext := asTagged(t, storage)
		defer ext.Release()
		a, err := cdevice.WrapArray(ext, device.CPUDevice())
		require.NoError(t, err)
		defer a.Release()

		eachKind(t, func(t *testing.T, k kind) {
			register()
			known := k.through(t, a)
			require.NoError(t, known.ValidateFull(background))
			defer known.Release()
			unregister()
			assert.True(t, arrow.TypeEqual(ext.DataType(), known.DataType()))
			view, err := known.HostView(context.Background())
			require.NoError(t, err)
			defer view.Release()
			assertEqualArrays(t, storage, view.(array.ExtensionArray).Storage())
			copied, err := known.CopyToHost(context.Background(), nil)
			require.NoError(t, err)
			defer copied.Release()
			assertEqualArrays(t, storage, copied.(array.ExtensionArray).Storage())

			unknown := k.through(t, a)
			defer unknown.Release()
			assert.True(t, arrow.TypeEqual(storage.DataType(), unknown.DataType()), "its storage")
			register()
			again := k.through(t, unknown)
			defer again.Release()
			unregister()
			assert.True(t, arrow.TypeEqual(ext.DataType(), again.DataType()), "the name was kept on the way")
			name, _ := unknown.Field().Metadata.GetValue("ARROW:extension:name")
			assert.Equal(t, "arrowdevice.test.tagged", name)
		})
	})
}

func TestExtensionOfAnExtensionIsRefused(t *testing.T) {
	checkLeaks(t)
	inner := asTagged(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`))
	defer inner.Release()
	outer := asTagged(t, inner)
	defer outer.Release()
	a := kept(cdevice.WrapArray(outer, device.CPUDevice()))(t)
	var out cdevice.CArrowDeviceArray
	err := cdevice.ExportArray(a, &out, garbageSchema())
	assert.ErrorIs(t, err, arrow.ErrNotImplemented)
	assert.Zero(t, out, "written only on success")
}
