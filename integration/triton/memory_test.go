package triton

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// place is a kind of memory that a server opens.
type place struct {
	proxied bool // the server opens it by a proxy
	batch   func(ctx context.Context, rec arrow.RecordBatch) (*cdevice.RecordBatch, error)
	region  func(ctx context.Context, name string, batch *cdevice.RecordBatch, opts ...triton.RegionOption) (*triton.Region, error)
	outputs func(ctx context.Context, name string, schema *arrow.Schema, rows int64, opts ...triton.RegionOption) (*triton.Outputs, error)
}

// cuda returns the memory of a GPU, or of the first of two simulated ones, which a server opens by a proxy.
func cuda(t *testing.T) place {
	interpreter(t)
	m := cudatest.One(t, cudasim.Options{Devices: 2})
	gpu := m.GPUs[0]
	return place{
		proxied: m.Sim != nil,
		batch: func(ctx context.Context, rec arrow.RecordBatch) (*cdevice.RecordBatch, error) {
			return cdevice.CopyToDevice(ctx, rec, gpu.Shareable())
		},
		region: triton.NewRegion,
		outputs: func(ctx context.Context, name string, schema *arrow.Schema, rows int64, opts ...triton.RegionOption) (*triton.Outputs, error) {
			return triton.NewOutputs(ctx, name, gpu, schema, rows, opts...)
		},
	}
}

// system is system shared memory.
var system = place{
	batch: func(_ context.Context, rec arrow.RecordBatch) (*cdevice.RecordBatch, error) {
		return cdevice.WrapRecordBatch(rec, device.CPUDevice())
	},
	region:  triton.NewSystemRegion,
	outputs: triton.NewSystemOutputs,
}

// inEachMemory runs a test for each kind of memory, or skips it.
func inEachMemory(t *testing.T, test func(t *testing.T, p place)) {
	interpreter(t)
	t.Run("system", func(t *testing.T) {
		cdevicetest.CheckLeaks(t)
		test(t, system)
	})
	t.Run("cuda", func(t *testing.T) {
		cdevicetest.CheckLeaks(t)
		test(t, cuda(t))
	})
}

// upload returns a batch of columns in JSON; it is released at the end of the test.
func (p place) upload(t *testing.T, schema *arrow.Schema, columns ...string) *cdevice.RecordBatch {
	t.Helper()
	var all []arrow.Array
	for i, text := range columns {
		column, _, err := array.FromJSON(memory.DefaultAllocator, schema.Field(i).Type, strings.NewReader(text))
		require.NoError(t, err)
		defer column.Release()
		all = append(all, column)
	}
	rec := array.NewRecordBatch(schema, all, int64(all[0].Len()))
	defer rec.Release()
	batch, err := p.batch(bounded(t), rec)
	require.NoError(t, err)
	t.Cleanup(batch.Release)
	return batch
}
