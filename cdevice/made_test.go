package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// exportMade exports what a method of a batch or an array made of it for a consumer, and
// releases that: exportMade(out, schema)(b.RecordEvent(s)).
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
			return cdevice.ExportPlainArray(a, out, schema)
		}
		return cdevice.ExportPlainRecordBatch(made.(*cdevice.RecordBatch), out, schema)
	}
}

// made returns what a method made of a reader or a batch that it no longer needs, which it
// releases: made(t, r)(r.AsCPU(ctx)).
func made[T interface{ Release() }](t testing.TB, from T) func(T, error) T {
	return func(item T, err error) T {
		t.Helper()
		require.NoError(t, err)
		from.Release()
		return item
	}
}
