package triton_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// Outputs that the memory does not have room for, or whose room is not known, are refused.
func TestNewSystemOutputsRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	texts := func(dt arrow.DataType) *arrow.Schema { return schemaOf(field("x", dt)) }
	sized := func(bytes int64) []triton.RegionOption {
		return []triton.RegionOption{triton.WithByteSize("x", bytes)}
	}
	utf8 := arrow.BinaryTypes.String
	for name, c := range map[string]struct {
		region string
		schema *arrow.Schema
		rows   int64
		opts   []triton.RegionOption
		want   string
	}{
		"no name":         {"", numbers, 1, nil, `name = ""`},
		"no rows":         {"o", numbers, 0, nil, "rows = 0, want at least 1"},
		"no fields":       {"o", schemaOf(), 1, nil, "schema.NumFields = 0"},
		"no size":         {"o", texts(utf8), 1, nil, `columns["x"].WithByteSize = absent, want the bytes of all values of utf8, and 4 for each`},
		"other size":      {"o", texts(utf8), 1, []triton.RegionOption{triton.WithByteSize("y", 8)}, `columns["x"].WithByteSize = absent`},
		"size of numbers": {"o", numbers, 1, []triton.RegionOption{triton.WithByteSize("a", 8)}, `WithByteSize = "a", want the name of a column of text or bytes`},
		"zero size":       {"o", texts(utf8), 1, sized(0), `columns["x"].WithByteSize = 0, want 1 or more`},
		"large views":     {"o", texts(arrow.BinaryTypes.StringView), 1, sized(1 << 31), `columns["x"].WithByteSize = 2147483648, want less than 2 GiB, or a column of large_utf8`},
		"large text":      {"o", texts(utf8), 1, sized(1 << 31), `columns["x"].WithByteSize = 2147483648, want less than 2 GiB, or a column of large_utf8`},
		"too many":        {"o", numbers, math.MaxInt64 / 4, nil, `columns["a"].shape`},
		"in all":          {"o", numbers, 1 << 59, nil, `columns["b"].shape`},
		"memory":          {"o", numbers, 1 << 50, nil, `region "o" = 1`},
		"shape":           {"o", numbers, 1, []triton.RegionOption{triton.WithShape("a", 1)}, `WithShape = "a", want no shape: the server gives`},
		"capacity":        {"o", numbers, 1, []triton.RegionOption{triton.WithCapacity(1)}, "WithCapacity = 1, want no capacity"},
		"pinned text":     {"o", texts(utf8), 1, append(sized(8), triton.WithPinnedMemory(m.GPUs[0])), `columns["x"].type = utf8, want numbers or arrow.bool8 with WithPinnedMemory`},
		"pinned bits":     {"o", texts(arrow.FixedWidthTypes.Boolean), 1, []triton.RegionOption{triton.WithPinnedMemory(m.GPUs[0])}, `columns["x"].type = bool, want numbers`},
		"not a GPU":       {"o", numbers, 1, []triton.RegionOption{triton.WithPinnedMemory(device.CPUDevice())}, "triton: WithPinnedMemory: gpu is a device.host, want a device that page-locks"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := triton.NewSystemOutputs(background, c.region, c.schema, c.rows, c.opts...)
			assert.ErrorContains(t, err, c.want)
		})
	}
	assert.Empty(t, objects(t))
}

// Any lengths of BYTES that a server has written are an error that names the output and the row, or values within the memory.
func TestLengthsOfAServer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	b := arrow.BinaryTypes
	length := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	for name, c := range map[string]struct {
		written []byte
		shape   []int64
		size    int64 // that the response has
		want    string
		binary  bool // that columns of bytes are an error, too
	}{
		"beyond":      {append(encoded("a"), length(20)...), []int64{2}, 0, `rows[1].length = 20, want at most the 15 bytes that follow`, true},
		"far beyond":  {length(math.MaxUint32), []int64{1}, 0, `rows[0].length = 4294967295, want at most the 20 bytes that follow`, true},
		"too many":    {bytes.Repeat(length(0), 6), []int64{7}, 0, `rows[6] = behind the end of the tensor, want 7 values`, true},
		"cut length":  {encoded("ninety bytes and", ""), []int64{3}, 23, `rows[1] = behind the end of the tensor, want 3 values`, true},
		"beyond size": {encoded("abc"), []int64{1}, 6, `rows[0].length = 3, want at most the 2 bytes that follow`, true},
		"invalid":     {encoded("a", "\xff"), []int64{2}, 0, `rows[1] = "\xff", want UTF-8, or a column of binary`, false},
		"split":       {encoded("\xc3", "\xa4"), []int64{2}, 0, `rows[0] = "\xc3", want UTF-8`, false},
	} {
		for _, dt := range []arrow.DataType{b.String, b.LargeString, b.StringView, b.Binary, b.LargeBinary, b.BinaryView, arrow.FixedSizeListOf(1, b.String)} {
			t.Run(fmt.Sprint(name, " ", dt), func(t *testing.T) {
				o := systemOutputsOf(t, "o", schemaOf(field("x", dt)), 7, triton.WithByteSize("x", 24))
				h.registered(t, o.Region())
				copy(h.regions["o"], c.written)
				batch, err := o.Batch(&triton.Response{Outputs: []triton.OutputTensor{{Name: "x", Datatype: "BYTES", Shape: c.shape, ByteSize: c.size}}})
				if isBytes := dt.ID() == arrow.BINARY || dt.ID() == arrow.LARGE_BINARY || dt.ID() == arrow.BINARY_VIEW; isBytes && !c.binary {
					require.NoError(t, err)
					batch.Release()
					return
				}
				assert.ErrorContains(t, err, `triton: batch: Response.outputs["x"].`+c.want)
				assert.ErrorIs(t, err, arrow.ErrInvalid)
			})
		}
	}
}

// Bytes of a BOOL are true unless they are 0.
func TestBoolsOfAServer(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	o := systemOutputsOf(t, "o", schemaOf(field("x", arrow.FixedWidthTypes.Boolean)), 9)
	h.registered(t, o.Region())
	copy(h.regions["o"], []byte{0, 1, 2, 0xff, 0, 0, 0, 0, 1, 1})
	batch, err := o.Batch(&triton.Response{Outputs: []triton.OutputTensor{{Name: "x", Datatype: "BOOL", Shape: []int64{9}}}})
	require.NoError(t, err)
	defer batch.Release()
	require.NoError(t, batch.ValidateFull(background))
	assert.Equal(t, "[false true true true false false false false true]", columnText(t, batch))
}

// A batch of outputs retains their memory, which has no name any more after the last use.
func TestSystemOutputsHoldTheirMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	o := systemOutputsOf(t, "o", schemaOf(field("x", arrow.BinaryTypes.StringView)), 1, triton.WithByteSize("x", 100))
	mapped, err := os.OpenFile("/dev/shm"+o.Region().Key(), os.O_RDWR, 0)
	require.NoError(t, err)
	defer mapped.Close()
	_, err = mapped.Write(encoded(long))
	require.NoError(t, err)
	batch, err := o.Batch(&triton.Response{Outputs: []triton.OutputTensor{{Name: "x", Datatype: "BYTES", Shape: []int64{1}}}})
	require.NoError(t, err)
	o.Region().Close()
	assert.Equal(t, `["`+long+`"]`, columnText(t, batch))
	assert.Len(t, objects(t), 1)
	batch.Release()
	assert.Empty(t, objects(t))
	_, err = o.Batch(&triton.Response{Outputs: []triton.OutputTensor{{Name: "x", Datatype: "BYTES", Shape: []int64{1}}}})
	assert.ErrorIs(t, err, cdevice.ErrReleased)
}

// Outputs that a server may still write to are refused until it has closed them.
func TestSystemOutputsAfterADeadline(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	in := h.registered(t, systemRegionOf(t, "in", onHost(t, numbers, numbersRows)))
	out := systemOutputsOf(t, "out", numbers, 3)
	h.registered(t, out.Region())
	infer := func() error {
		_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}})
		return err
	}
	h.infer = func(_, _ map[string]placed) error { return status.Error(codes.DeadlineExceeded, "late") }
	assert.ErrorIs(t, infer(), context.DeadlineExceeded)
	h.infer = nil
	assert.ErrorContains(t, infer(), `Request.Outputs("out") = perhaps still written to`)
	require.NoError(t, h.client.Unregister(background, out.Region()))
	require.NoError(t, h.client.Register(background, out.Region()))
	assert.NoError(t, infer())
}
