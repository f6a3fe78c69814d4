package triton_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

var background = context.Background()

// All tests together leave nothing behind. Memory is released after work, on a goroutine of the backend.
func TestMain(m *testing.M) {
	cudatest.WithoutDefault()
	code := goroutineleak.Run(m)
	ended := within.Becomes(20*time.Second, func() bool { return cdevice.ReadStats() == (cdevice.Stats{}) })
	if code == 0 && !ended {
		fmt.Fprintf(os.Stderr, "the tests left something unreleased: %+v\n", cdevice.ReadStats())
		code = 1
	}
	if left := held(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "the tests left memory or files: %s\n", left)
		code = 1
	}
	os.Exit(code)
}

// held returns the objects of system shared memory that this process has mapped or open, or that have its name.
func held() (all string) {
	maps, _ := os.ReadFile("/proc/self/maps")
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "/dev/shm/arrowdevice-triton-") {
			all += line
		}
	}
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, file := range files {
		if name, _ := os.Readlink(file); strings.Contains(name, "/dev/shm/arrowdevice-triton-") {
			all += name + "\n"
		}
	}
	names, _ := filepath.Glob(fmt.Sprintf("/dev/shm/arrowdevice-triton-%d-*", os.Getpid()))
	return all + strings.Join(names, "\n")
}

func schemaOf(fields ...arrow.Field) *arrow.Schema { return arrow.NewSchema(fields, nil) }

func field(name string, dt arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: dt, Nullable: true}
}

var (
	integers = arrow.PrimitiveTypes.Int64
	numbers  = schemaOf(field("a", integers), field("b", arrow.PrimitiveTypes.Float32))
)

const numbersRows = `[{"a":1,"b":0.5},{"a":2,"b":1.5},{"a":3,"b":2.5}]`

// upload returns a batch of JSON on a device that the test owns. It has an event.
func upload(t *testing.T, dev device.Device, schema *arrow.Schema, text string) *cdevice.RecordBatch {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(text))
	require.NoError(t, err)
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(background, rec, dev)
	require.NoError(t, err)
	t.Cleanup(batch.Release)
	return batch
}

// regionOf returns a region that the test closes.
func regionOf(t *testing.T, name string, batch *cdevice.RecordBatch, opts ...triton.RegionOption) *triton.Region {
	t.Helper()
	r, err := triton.NewRegion(background, name, batch, opts...)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// register makes the server of a client open regions.
func register(t *testing.T, c *triton.Client, regions ...*triton.Region) {
	t.Helper()
	for _, r := range regions {
		require.NoError(t, c.Register(background, r))
	}
}

// outputsOf returns outputs whose region the test closes.
func outputsOf(t *testing.T, m *cudatest.Machine, name string, schema *arrow.Schema, rows int64) *triton.Outputs {
	t.Helper()
	o, err := triton.NewOutputs(background, name, m.GPUs[0], schema, rows)
	require.NoError(t, err)
	t.Cleanup(o.Region().Close)
	return o
}
