package triton

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// All tests together leave nothing behind. Memory is released after work, on a goroutine of the backend.
func TestMain(m *testing.M) {
	cudatest.WithoutDefault()
	code := goroutineleak.Run(m)
	stopShared()
	ended := within.Becomes(20*time.Second, func() bool { return cdevice.ReadStats() == (cdevice.Stats{}) })
	if code == 0 && !ended {
		fmt.Fprintf(os.Stderr, "the tests left something unreleased: %+v\n", cdevice.ReadStats())
		code = 1
	}
	os.Exit(code)
}

// machine returns the first GPU of a simulated machine.
func machine(t *testing.T, o cudasim.Options) *cudaalloc.Device {
	m := cudatest.Simulated(t, o)
	return m.GPUs[0]
}

// bounded is a context that ends a test that hangs.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	t.Cleanup(cancel)
	return ctx
}

// upload returns a batch in memory that can be shared, of columns in JSON; it is released at the end of the test.
func upload(t *testing.T, gpu *cudaalloc.Device, schema *arrow.Schema, columns ...string) *cdevice.RecordBatch {
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
	batch, err := cdevice.CopyToDevice(bounded(t), rec, gpu.Shareable())
	require.NoError(t, err)
	t.Cleanup(batch.Release)
	return batch
}

// check compares the columns of a batch, in JSON, and releases it.
func check(t *testing.T, batch *cdevice.RecordBatch, columns ...string) {
	t.Helper()
	defer batch.Release()
	rec, err := batch.CopyToHost(bounded(t), nil)
	require.NoError(t, err)
	defer rec.Release()
	for i, want := range columns {
		text, err := rec.Column(i).MarshalJSON()
		require.NoError(t, err)
		assert.JSONEq(t, want, string(text))
	}
}

// registered returns the region of a batch, which the server has open until the end of the test.
func registered(t *testing.T, s *server, name string, batch *cdevice.RecordBatch, opts ...triton.RegionOption) *triton.Region {
	t.Helper()
	r, err := triton.NewRegion(bounded(t), name, batch, opts...)
	require.NoError(t, err)
	register(t, s, r)
	return r
}

// results returns registered outputs.
func results(t *testing.T, s *server, name string, gpu *cudaalloc.Device, schema *arrow.Schema, rows int64) *triton.Outputs {
	t.Helper()
	out, err := triton.NewOutputs(bounded(t), name, gpu, schema, rows)
	require.NoError(t, err)
	register(t, s, out.Region())
	return out
}

// register registers a region, and unregisters and closes it at the end of the test.
func register(t *testing.T, s *server, r *triton.Region) {
	t.Helper()
	require.NoError(t, s.Register(bounded(t), r))
	t.Cleanup(func() {
		if !s.killed {
			require.NoError(t, s.Unregister(bounded(t), r))
		}
		r.Close()
	})
}
