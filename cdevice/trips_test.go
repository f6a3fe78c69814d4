package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// through exports a to a struct and imports it again, schema and all.
func (k kind) through(t *testing.T, a *cdevice.Array, opts ...cdevice.ImportOption) *cdevice.Array {
	t.Helper()
	out, schema := k.newArray(), garbageSchema()
	require.NoError(t, out.exportArray(a, schema))
	back, err := out.importArray(schema, opts...)
	require.NoError(t, err)
	assert.Zero(t, out.members().Release, "it was moved")
	return back
}

// throughC is kind.through a device struct.
func throughC(t *testing.T, a *cdevice.Array, opts ...cdevice.ImportOption) *cdevice.Array {
	t.Helper()
	return deviceKind.through(t, a, opts...)
}

// exportMade exports the result of a method of a batch or an array, and releases it:
// exportMade(out, schema)(b.RecordEvent(s)).
func exportMade[A cdevice.ArrayStruct](out *A, schema *cdata.CArrowSchema) func(interface{ Release() }, error) error {
	return func(made interface{ Release() }, err error) error {
		if err != nil {
			return err
		}
		defer made.Release()
		if a, ok := made.(*cdevice.Array); ok {
			return cdevice.ExportArray(a, out, schema)
		}
		return cdevice.ExportRecordBatch(made.(*cdevice.RecordBatch), out, schema)
	}
}

// passOn exports i and imports it again, without looking inside.
func passOn(t testing.TB, i imported) {
	t.Helper()
	out, schema := garbageArray(), garbageSchema()
	var again imported
	var err error
	if b, ok := i.(*cdevice.RecordBatch); ok {
		require.NoError(t, cdevice.ExportRecordBatch(b, out, schema))
		again, err = orNil(cdevice.ImportRecordBatch(out, schema))
	} else {
		require.NoError(t, cdevice.ExportArray(i.(*cdevice.Array), out, schema))
		again, err = orNil(cdevice.ImportArray(out, schema))
	}
	require.NoError(t, err)
	assert.Equal(t, i.DeviceID(), again.DeviceID())
	assert.Equal(t, i.String(), again.String())
	again.Release()
}

// exportOnly exports i to out, without a schema.
func exportOnly(t *testing.T, i imported, out *cdevice.CArrowDeviceArray) {
	t.Helper()
	if b, ok := i.(*cdevice.RecordBatch); ok {
		require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
	} else {
		require.NoError(t, cdevice.ExportArray(i.(*cdevice.Array), out, nil))
	}
}
