package triton

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
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

// bounded is a context that ends a test that hangs.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	t.Cleanup(cancel)
	return ctx
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
