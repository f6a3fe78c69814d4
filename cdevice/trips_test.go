package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// throughC exports a and imports it again, schema and all.
func throughC(t *testing.T, a *cdevice.Array, opts ...cdevice.ImportOption) *cdevice.Array {
	t.Helper()
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportArray(a, out, schema))
	back, err := cdevice.ImportArray(out, schema, opts...)
	require.NoError(t, err)
	return back
}

// throughPlain exports an array to a plain struct and imports it again, schema and all.
func throughPlain(t *testing.T, a *cdevice.Array, opts ...cdevice.ImportOption) *cdevice.Array {
	t.Helper()
	out, schema := garbagePlain(), garbageSchema()
	require.NoError(t, cdevice.ExportArray(a, out, schema))
	back, err := cdevice.ImportArray(out, schema, opts...)
	require.NoError(t, err)
	assert.Zero(t, plainArray(out).Release, "it was moved")
	return back
}

// exportMade exports the result of a method of a batch or an array, and releases it:
// exportMade(out, schema)(b.RecordEvent(s)).
func exportMade(out *cdevice.CArrowDeviceArray, schema *cdata.CArrowSchema) func(interface{ Release() }, error) error {
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

// exportMadePlain is exportMade into a plain struct.
func exportMadePlain(out *cdata.CArrowArray, schema *cdata.CArrowSchema) func(interface{ Release() }, error) error {
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
