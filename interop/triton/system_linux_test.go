package triton_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/triton"
)

// encoded returns numbers in little-endian order, and texts as BYTES.
func encoded(values ...any) (b []byte) {
	for _, v := range values {
		if text, ok := v.(string); ok {
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(text))), text...)
			continue
		}
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

const long = "more than the twelve bytes of a view, ä"

// An everyType is a column of three values, and the tensor that it becomes.
type everyType struct {
	dt       arrow.DataType
	json     [3]string
	datatype string
	row      []int64 // the shape of a row
	want     [3][]byte
}

func everyTypes() (all []everyType) {
	add := func(dt arrow.DataType, datatype string, row []int64, json [3]string, want ...[]byte) {
		all = append(all, everyType{dt, json, datatype, row, [3][]byte(want)})
	}
	numbers := [3]string{"1", "2", "3"}
	p := arrow.PrimitiveTypes
	add(p.Int8, "INT8", nil, numbers, []byte{1}, []byte{2}, []byte{3})
	add(p.Int16, "INT16", nil, numbers, encoded(int16(1)), encoded(int16(2)), encoded(int16(3)))
	for _, dt := range []arrow.DataType{p.Int32, arrow.FixedWidthTypes.Date32, arrow.FixedWidthTypes.Time32ms} {
		add(dt, "INT32", nil, jsonOf(dt, numbers), encoded(int32(1)), encoded(int32(2)), encoded(int32(3)))
	}
	for _, dt := range []arrow.DataType{p.Int64, arrow.FixedWidthTypes.Time64ns, arrow.FixedWidthTypes.Timestamp_ns, arrow.FixedWidthTypes.Duration_ns} {
		add(dt, "INT64", nil, jsonOf(dt, numbers), encoded(int64(1)), encoded(int64(2)), encoded(int64(3)))
	}
	add(p.Uint8, "UINT8", nil, numbers, []byte{1}, []byte{2}, []byte{3})
	add(p.Uint16, "UINT16", nil, numbers, encoded(uint16(1)), encoded(uint16(2)), encoded(uint16(3)))
	add(p.Uint32, "UINT32", nil, numbers, encoded(uint32(1)), encoded(uint32(2)), encoded(uint32(3)))
	add(p.Uint64, "UINT64", nil, numbers, encoded(uint64(1)), encoded(uint64(2)), encoded(uint64(3)))
	add(arrow.FixedWidthTypes.Float16, "FP16", nil, numbers, []byte{0, 0x3c}, []byte{0, 0x40}, []byte{0, 0x42})
	add(p.Float32, "FP32", nil, numbers, encoded(float32(1)), encoded(float32(2)), encoded(float32(3)))
	add(p.Float64, "FP64", nil, numbers, encoded(1.), encoded(2.), encoded(3.))
	add(arrow.FixedSizeListOf(2, p.Int8), "INT8", []int64{2}, [3]string{"[1,2]", "[3,4]", "[5,6]"}, []byte{1, 2}, []byte{3, 4}, []byte{5, 6})
	bools := [3]string{"true", "false", "true"}
	add(arrow.FixedWidthTypes.Boolean, "BOOL", nil, bools, []byte{1}, []byte{0}, []byte{1})
	add(extensions.NewBool8Type(), "BOOL", nil, bools, []byte{1}, []byte{0}, []byte{1})
	add(arrow.FixedSizeListOf(2, arrow.FixedWidthTypes.Boolean), "BOOL", []int64{2}, [3]string{"[true,true]", "[false,true]", "[true,false]"}, []byte{1, 1}, []byte{0, 1}, []byte{1, 0})
	texts, wants := [3]string{`"a"`, `"` + long + `"`, `""`}, [][]byte{encoded("a"), encoded(long), encoded("")}
	t := arrow.BinaryTypes
	for _, dt := range []arrow.DataType{t.String, t.LargeString, t.StringView} {
		add(dt, "BYTES", nil, texts, wants...)
	}
	coded := [3]string{`"YQ=="`, `"bW9yZSB0aGFuIHRoZSB0d2VsdmUgYnl0ZXMgb2YgYSB2aWV3LCDDpA=="`, `""`}
	for _, dt := range []arrow.DataType{t.Binary, t.LargeBinary, t.BinaryView} {
		add(dt, "BYTES", nil, coded, wants...)
	}
	add(arrow.FixedSizeListOf(2, t.String), "BYTES", []int64{2}, [3]string{`["a","bc"]`, `["","d"]`, `["` + long + `","e"]`}, encoded("a", "bc"), encoded("", "d"), encoded(long, "e"))
	add(arrow.FixedSizeListOf(2, t.StringView), "BYTES", []int64{2}, [3]string{`["a","bc"]`, `["","d"]`, `["` + long + `","e"]`}, encoded("a", "bc"), encoded("", "d"), encoded(long, "e"))
	return all
}

// jsonOf returns numbers as arrow-go reads them for a type.
func jsonOf(dt arrow.DataType, numbers [3]string) [3]string {
	switch dt.ID() {
	case arrow.DATE32:
		return [3]string{`"1970-01-02"`, `"1970-01-03"`, `"1970-01-04"`}
	case arrow.TIME32:
		return [3]string{`"00:00:00.001"`, `"00:00:00.002"`, `"00:00:00.003"`}
	case arrow.TIME64:
		return [3]string{`"00:00:00.000000001"`, `"00:00:00.000000002"`, `"00:00:00.000000003"`}
	}
	return numbers
}

// everyColumn returns the schema of all types, and rows as JSON.
func everyColumn(types []everyType) (schema *arrow.Schema, text string) {
	var fields []arrow.Field
	rows := make([][]string, 3)
	for i, c := range types {
		name := fmt.Sprint("c", i)
		fields = append(fields, field(name, c.dt))
		for k, v := range c.json {
			rows[k] = append(rows[k], `"`+name+`":`+v)
		}
	}
	var all []string
	for _, row := range rows {
		all = append(all, "{"+strings.Join(row, ",")+"}")
	}
	return schemaOf(fields...), "[" + strings.Join(all, ",") + "]"
}

// systemRegionOf returns a region that the test closes.
func systemRegionOf(t *testing.T, name string, batch *cdevice.RecordBatch, opts ...triton.RegionOption) *triton.Region {
	t.Helper()
	r, err := triton.NewSystemRegion(background, name, batch, opts...)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func systemOutputsOf(t *testing.T, name string, schema *arrow.Schema, rows int64, opts ...triton.RegionOption) *triton.Outputs {
	t.Helper()
	o, err := triton.NewSystemOutputs(background, name, schema, rows, opts...)
	require.NoError(t, err)
	t.Cleanup(o.Region().Close)
	return o
}

// onHost returns a batch of JSON in memory of the host that the test owns.
func onHost(t *testing.T, schema *arrow.Schema, text string) *cdevice.RecordBatch {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(text))
	require.NoError(t, err)
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	t.Cleanup(b.Release)
	return b
}

// A server sees the bytes of each type, of batches in any memory and of slices of them; it returns them, and the batch of the outputs
// is the batch of the inputs.
func TestGPUEveryTypeBySystemMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	types := everyTypes()
	schema, text := everyColumn(types)
	h := newHost(t)
	whole := onHost(t, schema, text)
	for name, batch := range map[string]*cdevice.RecordBatch{
		"host": whole, "cpu": upload(t, device.CPUDevice(), schema, text), "gpu": upload(t, gpu, schema, text), "shareable": upload(t, gpu.Shareable(), schema, text),
		"pinned": upload(t, gpu.Pinned(), schema, text), "managed": upload(t, gpu.Managed(), schema, text),
	} {
		for _, rows := range [][2]int64{{0, 3}, {1, 3}, {1, 2}} {
			t.Run(fmt.Sprint(name, rows), func(t *testing.T) {
				from, to := rows[0], rows[1]
				part, err := batch.Slice(from, to)
				require.NoError(t, err)
				defer part.Release()
				in := h.registered(t, systemRegionOf(t, "in", part))
				assert.Zero(t, in.ByteSize()%int64(os.Getpagesize()))
				sizes := make([]triton.RegionOption, 0, len(types))
				for i, c := range types {
					if c.datatype == "BYTES" {
						sizes = append(sizes, triton.WithByteSize(fmt.Sprint("c", i), 200))
					}
				}
				out := systemOutputsOf(t, "out", schema, 4, sizes...)
				h.registered(t, out.Region())
				h.infer = func(inputs, outputs map[string]placed) error {
					for i, c := range types {
						name := fmt.Sprint("c", i)
						got := inputs[name]
						assert.Equal(t, c.datatype, got.datatype, c.dt)
						assert.Equal(t, append([]int64{to - from}, c.row...), got.shape, c.dt)
						assert.Equal(t, bytes.Join(c.want[from:to], nil), got.bytes, c.dt)
						assert.Zero(t, in.Tensors()[i].Offset%64)
						copy(outputs[name].bytes, got.bytes)
					}
					return nil
				}
				_, err = h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}})
				require.NoError(t, err)
				response := &triton.Response{}
				for i, tensor := range in.Tensors() {
					require.Equal(t, fmt.Sprint("c", i), tensor.Name)
					response.Outputs = append(response.Outputs, triton.OutputTensor{Name: tensor.Name, Datatype: tensor.Datatype, Shape: tensor.Shape})
				}
				result, err := out.Batch(response)
				require.NoError(t, err)
				defer result.Release()
				require.NoError(t, result.ValidateFull(background))
				got, err := result.HostView(background)
				require.NoError(t, err)
				defer got.Release()
				all, err := whole.HostView(background)
				require.NoError(t, err)
				defer all.Release()
				want := all.NewSlice(from, to)
				defer want.Release()
				assert.True(t, array.RecordEqual(want, got), "%s\n%s", want, got)
			})
		}
	}
}

// Rows that there are none of are a tensor of no bytes, at an offset from which Triton computes its end.
func TestSystemRegionWithoutRows(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	h := newHost(t)
	schema, _ := everyColumn(everyTypes())
	in := h.registered(t, systemRegionOf(t, "in", onHost(t, schema, `[]`)))
	h.infer = func(inputs, _ map[string]placed) error {
		for name, p := range inputs {
			assert.Empty(t, p.bytes, name)
			assert.Zero(t, p.shape[0])
		}
		return nil
	}
	for _, tensor := range in.Tensors() {
		assert.NotZero(t, tensor.Offset)
		assert.Less(t, tensor.Offset, in.ByteSize())
	}
	_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{in}})
	assert.NoError(t, err)
}

func TestNewSystemRegionRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	good := onHost(t, numbers, numbersRows)
	nulls := onHost(t, schemaOf(field("x", arrow.BinaryTypes.String)), `[{"x":"a"},{"x":null}]`)
	gone, err := good.Slice(0, 1)
	require.NoError(t, err)
	gone.Release()
	text := func(offsets []int32, bytes string) *cdevice.RecordBatch {
		data := array.NewData(arrow.BinaryTypes.String, len(offsets)-1, []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), memory.NewBufferBytes([]byte(bytes))}, nil, 0, 0)
		defer data.Release()
		return columnOf(t, data)
	}
	views := func(length, index, offset int32) *cdevice.RecordBatch {
		view := memory.NewBufferBytes(encoded(length, int32(0), index, offset))
		data := array.NewData(arrow.BinaryTypes.StringView, 1, []*memory.Buffer{nil, view, memory.NewBufferBytes(make([]byte, 20))}, nil, 0, 0)
		defer data.Release()
		return columnOf(t, data)
	}
	invalid, not := arrow.ErrInvalid, arrow.ErrNotImplemented
	for name, c := range map[string]struct {
		region string
		batch  *cdevice.RecordBatch
		opts   []triton.RegionOption
		want   string
		is     error
	}{
		"large offsets":    {"r", text([]int32{0, 4, 3}, "abc"), nil, `columns["x"].rows[0] = outside of the data`, invalid},
		"negative view":    {"r", views(-1, 0, 0), nil, `columns["x"].rows[0] = outside of the data`, invalid},
		"view of none":     {"r", views(20, 1, 0), nil, `columns["x"].rows[0] = outside of the data`, invalid},
		"view of -1":       {"r", views(20, -1, 0), nil, `columns["x"].rows[0] = outside of the data`, invalid},
		"view at the end":  {"r", views(20, 0, 1), nil, `columns["x"].rows[0] = outside of the data`, invalid},
		"view before":      {"r", views(20, 0, -1), nil, `columns["x"].rows[0] = outside of the data`, invalid},
		"no name":          {"", good, nil, `name = "", want letters of ASCII, digits`, invalid},
		"released":         {"r", gone, nil, "released", cdevice.ErrReleased},
		"no columns":       {"r", onHost(t, schemaOf(), `[{},{}]`), nil, "RecordBatch.NumCols = 0", invalid},
		"same names":       {"r", selected(t, good, 0, 0), nil, `columns["a"].name = "a", want a name that no other column has`, invalid},
		"dictionary":       {"r", onHost(t, schemaOf(field("x", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String})), `[{"x":"a"}]`), nil, "the indices of a dictionary", not},
		"list":             {"r", onHost(t, schemaOf(field("x", arrow.ListOf(integers))), `[{"x":[1]}]`), nil, `columns["x"].type = list`, not},
		"nulls":            {"r", nulls, nil, `columns["x"].NullCount = 1, want 0: tensors have no nulls`, invalid},
		"offsets":          {"r", text([]int32{0, 2, 1, 3}, "abc"), nil, `columns["x"].rows[1] = outside of the data`, invalid},
		"negative offsets": {"r", text([]int32{-1, 0, 1}, "abc"), nil, `columns["x"].rows[0] = outside of the data`, invalid},
		"GPU number":       {"r", good, []triton.RegionOption{triton.WithDeviceID(1)}, "WithDeviceID = 1, want no number: it is for memory of a GPU", invalid},
		"size of a column": {"r", good, []triton.RegionOption{triton.WithByteSize("a", 1)}, `WithByteSize = "a", want no size: it is for NewSystemOutputs`, invalid},
		"small capacity":   {"r", good, []triton.RegionOption{triton.WithCapacity(500)}, "WithCapacity = 500, want at least the 768 bytes of the batch", invalid},
		"no capacity":      {"r", good, []triton.RegionOption{triton.WithCapacity(0)}, "WithCapacity = 0, want 1 or more", invalid},
		"too much":         {"r", good, []triton.RegionOption{triton.WithCapacity(1 << 62)}, `region "r" = 4611686018427387904 bytes`, nil},
		"shape":            {"r", good, []triton.RegionOption{triton.WithShape("a", -1, 2)}, `columns["a"].WithShape = [-1 2], want dimensions of 3 elements`, invalid},
		"rest of none":     {"r", good, []triton.RegionOption{triton.WithShape("a", -1, 0)}, `columns["a"].WithShape = [-1 0], want dimensions of 3 elements`, invalid},
		"two rests":        {"r", good, []triton.RegionOption{triton.WithShape("a", -1, -1)}, `columns["a"].WithShape = [-1 -1]`, invalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := triton.NewSystemRegion(background, c.region, c.batch, c.opts...)
			assert.ErrorContains(t, err, "triton: region: ")
			assert.ErrorContains(t, err, c.want)
			if c.is != nil {
				assert.ErrorIs(t, err, c.is)
			}
		})
	}
	assert.Empty(t, objects(t))
}

// A value has a length that is a uint32.
func TestValueOfTooManyBytes(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const size = 1 << 32
	unused, err := unix.Mmap(-1, 0, size, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Munmap(unused)) })
	offsets := memory.NewBufferBytes(arrow.Int64Traits.CastToBytes([]int64{0, size}))
	data := array.NewData(arrow.BinaryTypes.LargeBinary, 1, []*memory.Buffer{nil, offsets, memory.NewBufferBytes(unused)}, nil, 0, 0)
	defer data.Release()
	_, err = triton.NewSystemRegion(background, "r", columnOf(t, data))
	assert.ErrorContains(t, err, `columns["x"].rows[0] = 4294967296 bytes, want a length that is a uint32`)
}

// columnOf returns a batch of a column x that the test owns.
func columnOf(t *testing.T, data arrow.ArrayData) *cdevice.RecordBatch {
	t.Helper()
	column := array.MakeFromData(data)
	defer column.Release()
	rec := array.NewRecordBatch(schemaOf(field("x", data.DataType())), []arrow.Array{column}, int64(data.Len()))
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	t.Cleanup(b.Release)
	return b
}

// A request has regions of both kinds, each of which is registered and unregistered by the methods of its kind.
func TestRequestOfBothKinds(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	h := newHost(t)
	cuda := regionOf(t, "cuda", upload(t, m.GPUs[0].Shareable(), numbers, numbersRows))
	system := systemRegionOf(t, "system", onHost(t, labelled, labels(1, 3)))
	out := outputsOf(t, m, "out", schemaOf(field("y", integers)), 3)
	regions := []*triton.Region{cuda, system, out.Region()}
	for _, r := range regions {
		require.NoError(t, h.client.Register(background, r))
	}
	var places []string
	h.answer["ModelInfer"] = func(_ context.Context, message []byte) ([]byte, error) {
		fields := fieldsOf(t, message)
		for _, f := range append(fields[5], fields[6]...) {
			tensor := fieldsOf(t, f.Bytes)
			places = append(places, string(tensor[1][0].Bytes)+" in "+string(fieldsOf(t, fieldsOf(t, append(tensor[4], tensor[2]...)[0].Bytes)[2][0].Bytes)[3][0].Bytes))
		}
		return nil, nil
	}
	_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{cuda, system}, Outputs: []*triton.Outputs{out}})
	require.NoError(t, err)
	assert.Equal(t, []string{"a in cuda", "b in cuda", "n in system", "s in system", "y in out"}, places)
	for _, r := range regions {
		require.NoError(t, h.client.Unregister(background, r))
	}
	assert.Equal(t, []string{
		"CudaSharedMemoryRegister", "SystemSharedMemoryRegister", "CudaSharedMemoryRegister", "ModelInfer",
		"CudaSharedMemoryStatus", "CudaSharedMemoryUnregister", "CudaSharedMemoryStatus",
		"SystemSharedMemoryStatus", "SystemSharedMemoryUnregister", "SystemSharedMemoryStatus",
		"CudaSharedMemoryStatus", "CudaSharedMemoryUnregister", "CudaSharedMemoryStatus",
	}, h.calls)
}

func columnText(t *testing.T, b *cdevice.RecordBatch) string {
	t.Helper()
	rec, err := b.CopyToHost(background, nil)
	require.NoError(t, err)
	defer rec.Release()
	return rec.Column(0).String()
}

// Another process that cuts off the object makes reading and writing errors, not the end of this process.
func TestTruncatedObject(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	texts := schemaOf(field("x", arrow.BinaryTypes.String))
	batch := onHost(t, texts, `[{"x":"a"}]`)
	r := systemRegionOf(t, "r", batch)
	o := systemOutputsOf(t, "o", texts, 1, triton.WithByteSize("x", 8))
	for _, region := range []*triton.Region{r, o.Region()} {
		require.NoError(t, os.Truncate("/dev/shm"+region.Key(), 0))
	}
	_, err := o.Batch(&triton.Response{Outputs: []triton.OutputTensor{{Name: "x", Datatype: "BYTES", Shape: []int64{1}}}})
	assert.ErrorContains(t, err, "cannot be accessed")
	assert.ErrorContains(t, r.Write(background, batch), "cannot be accessed")
	numbersRegion := systemRegionOf(t, "n", onHost(t, numbers, numbersRows))
	require.NoError(t, os.Truncate("/dev/shm"+numbersRegion.Key(), 0))
	assert.ErrorContains(t, numbersRegion.Write(background, onHost(t, numbers, numbersRows)), "cannot be accessed")
}

// Page-locked memory is unlocked before it is unmapped. GPUs copy right to it, and its batches are the GPU's.
func TestGPUPinnedSystemMemory(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{PageableAsync: true})
	gpu := m.GPUs[0]
	h := newHost(t)
	in := h.registered(t, systemRegionOf(t, "in", upload(t, gpu, numbers, numbersRows), triton.WithPinnedMemory(gpu)))
	out := systemOutputsOf(t, "out", numbers, 3, triton.WithPinnedMemory(gpu))
	h.registered(t, out.Region())
	assert.EqualValues(t, 2, gpu.ReadStats().Registered.Allocations)
	h.infer = func(inputs, outputs map[string]placed) error {
		for name := range inputs {
			copy(outputs[name].bytes, inputs[name].bytes)
		}
		return nil
	}
	_, err := h.client.Infer(background, &triton.Request{Model: "m", Inputs: []*triton.Region{in}, Outputs: []*triton.Outputs{out}})
	require.NoError(t, err)
	batch, err := out.Batch(&triton.Response{Outputs: []triton.OutputTensor{{Name: "a", Datatype: "INT64", Shape: []int64{3}}, {Name: "b", Datatype: "FP32", Shape: []int64{3}}}})
	require.NoError(t, err)
	assert.Equal(t, gpu.Pinned().ID(), batch.DeviceID())
	there, err := batch.CopyTo(background, gpu)
	require.NoError(t, err)
	assert.Equal(t, "[1 2 3]", columnText(t, there))
	there.Release()
	batch.Release()
	in.Close()
	out.Region().Close()
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, gpu.ReadStats().Registered.Allocations)
	assert.Empty(t, objects(t))
}

// A GPU that does not page-lock the memory leaves nothing behind.
func TestPageLockFails(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	fault := cudatest.Fault{Function: "cuMemHostRegister", Call: 1}
	met := m.Meets(t, "region", fault, 999, func() {
		_, err := triton.NewSystemRegion(background, "r", onHost(t, numbers, numbersRows), triton.WithPinnedMemory(m.GPUs[0]))
		assert.ErrorContains(t, err, `region "r" = 4096 bytes: page-lock: `)
	})
	assert.True(t, met)
	assert.Empty(t, objects(t))
}

// counting is a context that counts how often it is asked.
type counting struct {
	context.Context
	asked atomic.Int64
}

func (c *counting) Err() error { c.asked.Add(1); return c.Context.Err() }

// Columns that are encoded check the context every 4 MiB: when they are measured, and when they are written.
func TestEncodingChecksTheContext(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const size = 20 << 20
	text := func(rows int, value string) arrow.Array {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		defer b.Release()
		for range rows {
			b.Append(value)
		}
		return b.NewArray()
	}
	bools := array.NewBooleanBuilder(memory.DefaultAllocator)
	defer bools.Release()
	bools.AppendValues(make([]bool, size), nil)
	for name, c := range map[string]struct {
		column arrow.Array
		want   int64
	}{
		"short texts": {text(size/4, ""), 2 * 5}, "a long text": {text(1, strings.Repeat("a", size)), 5}, "bools": {bools.NewArray(), 5},
	} {
		t.Run(name, func(t *testing.T) {
			defer c.column.Release()
			batch := columnOf(t, c.column.Data())
			ctx := &counting{Context: background}
			r, err := triton.NewSystemRegion(ctx, "r", batch)
			require.NoError(t, err)
			r.Close()
			assert.GreaterOrEqual(t, ctx.asked.Load(), c.want)
			ended, cancel := context.WithCancel(background)
			cancel()
			_, err = triton.NewSystemRegion(ended, "r", batch)
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
}

// acting is a context that does something when it is asked.
type acting struct {
	context.Context
	do func()
}

func (a acting) Err() error { a.do(); return a.Context.Err() }

// A program that changes an array while it is copied gets an error, or other values, and nothing is written beyond the tensor.
func TestArrayThatChanges(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, later := range map[string][]int32{"longer": {0, 0, 20}, "outside": {0, 30, 20}} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			for after := range 10 {
				offsets := []int32{10, 11, 20}
				data := array.NewData(arrow.BinaryTypes.String, 2, []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), memory.NewBufferBytes(make([]byte, 20))}, nil, 0, 0)
				batch := columnOf(t, data)
				data.Release()
				asked := 0
				ctx := acting{background, func() {
					if asked++; asked > after {
						copy(offsets, later)
					}
				}}
				r, err := triton.NewSystemRegion(ctx, "r", batch)
				if err == nil {
					r.Close()
					assert.False(t, name == "outside" && asked > after, "changed at call %d", after)
					continue
				}
				failed++
				assert.ErrorContains(t, err, "outside of the data")
			}
			assert.NotZero(t, failed)
		})
	}
}
