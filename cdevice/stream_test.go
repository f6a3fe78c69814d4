package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

func TestStreamSmoke(t *testing.T) {
	checkLeaks(t)
	rec := twoColumns(t)
	rdr, err := array.NewRecordReader(rec.Schema(), []arrow.RecordBatch{rec, rec, rec})
	require.NoError(t, err)
	defer rdr.Release()
	r, err := cdevice.WrapRecordReader(rdr, device.Host())
	require.NoError(t, err)
	out := new(cdevice.CArrowDeviceArrayStream)
	require.NoError(t, cdevice.ExportRecordReader(r, out))
	r.Release()
	in, err := cdevice.ImportRecordReader(out)
	require.NoError(t, err)
	defer in.Release()
	n := 0
	for b, err := range in.All() {
		require.NoError(t, err)
		assert.Equal(t, rec.NumRows(), b.NumRows())
		n++
	}
	assert.Equal(t, 3, n)
}
