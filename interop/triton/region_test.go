package triton_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/interop/triton"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// A region has the addresses of the batch, as offsets in the allocation of the handle.
func TestGPURegionOfASlice(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	batch := upload(t, gpu.Shareable(), numbers, numbersRows)
	part, err := batch.Slice(1, 3)
	require.NoError(t, err)
	defer part.Release()
	r := regionOf(t, "r", part)
	for i, want := range []triton.Tensor{{Name: "a", Datatype: "INT64", Shape: []int64{2}, ByteSize: 16}, {Name: "b", Datatype: "FP32", Shape: []int64{2}, ByteSize: 8}} {
		column := part.Column(i)
		handle, whole, err := gpu.MemoryHandle(column.Buffers()[1])
		column.Release()
		require.NoError(t, err)
		want.Offset = int64(column.Buffers()[1]-whole.Start) + column.Offset()*want.ByteSize/2
		assert.Equal(t, want, r.Tensors()[i])
		assert.Equal(t, handle[:], handleOf(t, r))
		assert.Equal(t, handle[:], r.RawHandle())
		assert.Empty(t, r.Key())
		assert.Equal(t, whole.Size, r.ByteSize())
	}
	assert.Equal(t, "r", r.Name())
	assert.Zero(t, r.DeviceID())
}

// handleOf returns the handle with which a client registers a region.
func handleOf(t *testing.T, r *triton.Region) (handle []byte) {
	t.Helper()
	f := newFake()
	f.answer["CudaSharedMemoryRegister"] = func(_ context.Context, message []byte) ([]byte, error) {
		for field, err := range protofield.Fields(message) {
			require.NoError(t, err)
			if field.Number == 2 {
				handle = field.Bytes
			}
		}
		return nil, nil
	}
	c, err := triton.NewClient(f)
	require.NoError(t, err)
	require.NoError(t, c.Register(background, r))
	return handle
}

// The region holds the memory until Close, and while a server is asked to open it.
func TestRegionHoldsTheBatch(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem, err := gpu.Shareable().Allocate(background, 64, nil)
	require.NoError(t, err)
	released := make(chan struct{})
	batch, err := cdevice.NewRecordBatch(gpu, schemaOf(field("a", integers)), 8, []cdevice.ArrayData{{Length: 8, Buffers: []device.Ptr{0, mem.Ptr()}}}, cdevice.Lifetime{Release: func() {
		defer close(released)
		assert.NoError(t, mem.FreeAfter(nil))
	}})
	require.NoError(t, err)
	r, err := triton.NewRegion(background, "r", batch)
	require.NoError(t, err)
	batch.Release()
	isHeld := func(when string) {
		require.NoError(t, gpu.Flush(background))
		select {
		case <-released:
			t.Fatal("released " + when)
		default:
		}
	}
	isHeld("before Close")
	f := newFake()
	f.answer["CudaSharedMemoryRegister"] = func(context.Context, []byte) ([]byte, error) {
		r.Close()
		isHeld("while the server opens it")
		return nil, nil
	}
	c, err := triton.NewClient(f)
	require.NoError(t, err)
	require.NoError(t, c.Register(background, r))
	within.Seconds(t, "release", func() error { <-released; return nil })
}

// Triton knows no events: the region is there when the batch's is complete.
func TestNewRegionWaits(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	stream := cudatest.NewStream(t, gpu)
	for name, schema := range map[string]*arrow.Schema{"no nulls": numbers, "nulls to count": schemaOf(field("a", integers))} {
		t.Run(name, func(t *testing.T) {
			text := map[bool]string{true: numbersRows, false: `[{"a":null},{"a":1},{"a":2}]`}[schema == numbers]
			batch := upload(t, gpu.Shareable(), schema, text)
			require.NoError(t, batch.Synchronize(background))
			part, err := batch.Slice(1, 3) // whose nulls are not known
			require.NoError(t, err)
			defer part.Release()
			open := m.Hold(t, stream)
			pending, err := part.WithEvent(stream)
			require.NoError(t, err)
			defer pending.Release()
			within.Context(t, "NewRegion", func(ctx context.Context) error {
				_, err := triton.NewRegion(ctx, "r", pending)
				return err
			})
			made := make(chan error, 1)
			go func() {
				r, err := triton.NewRegion(background, "r", pending)
				if err == nil {
					r.Close()
				}
				made <- err
			}()
			open()
			within.Seconds(t, "NewRegion", func() error { return <-made })
		})
	}
}

func TestNewRegionRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	shareable := gpu.Shareable()
	good := upload(t, shareable, numbers, numbersRows)
	typed := func(dt arrow.DataType, values string) *cdevice.RecordBatch {
		return upload(t, shareable, schemaOf(field("x", dt)), `[{"x":`+values+`}]`)
	}
	nulls := upload(t, shareable, schemaOf(field("x", integers)), `[{"x":1},{"x":null},{"x":2}]`)
	slice, err := nulls.Slice(1, 2)
	require.NoError(t, err)
	defer slice.Release()
	released := upload(t, shareable, numbers, numbersRows)
	released.Retain()
	gone, err := released.Slice(0, 1)
	require.NoError(t, err)
	gone.Release()
	released.Release()
	two := scattered(t, gpu)
	invalid, not := arrow.ErrInvalid, arrow.ErrNotImplemented
	for name, c := range map[string]struct {
		region string
		batch  *cdevice.RecordBatch
		opts   []triton.RegionOption
		want   string
		is     error
	}{
		"no name":         {"", good, nil, `name = "", want letters of ASCII, digits`, invalid},
		"bad name":        {"\xff", good, nil, `name = "\xff"`, invalid},
		"released":        {"r", gone, nil, "released", cdevice.ErrReleased},
		"host":            {"r", upload(t, device.CPUDevice(), numbers, numbersRows), nil, "RecordBatch.DeviceID = cpu, want memory of a GPU: CopyTo with Device.Shareable", device.ErrNotSupported},
		"pinned":          {"r", upload(t, gpu.Pinned(), numbers, numbersRows), nil, "RecordBatch.DeviceID = cuda_host:0", device.ErrNotSupported},
		"managed":         {"r", upload(t, gpu.Managed(), numbers, numbersRows), nil, "RecordBatch.DeviceID = cuda_managed:0", device.ErrNotSupported},
		"pool":            {"r", upload(t, gpu, numbers, numbersRows), nil, `columns["a"].memory: `, device.ErrNotShareable},
		"several":         {"r", two, nil, `columns["b"].memory = outside of the allocation of "a", want all columns in one allocation: CopyTo`, invalid},
		"no rows":         {"r", upload(t, shareable, numbers, `[]`), nil, "RecordBatch.NumRows = 0", invalid},
		"no columns":      {"r", upload(t, shareable, schemaOf(), `[{},{}]`), nil, "RecordBatch.Num", invalid},
		"same names":      {"r", selected(t, good, 0, 0), nil, `columns["a"].name = "a", want a name that no other column has`, invalid},
		"unnamed":         {"r", upload(t, shareable, schemaOf(field("", integers)), `[{"":1}]`), nil, `columns[""].name = ""`, invalid},
		"bits":            {"r", typed(arrow.FixedWidthTypes.Boolean, `true`), nil, `columns["x"].type = bool, want the extension type arrow.bool8`, not},
		"text":            {"r", typed(arrow.BinaryTypes.String, `"a"`), nil, `columns["x"].type = utf8, want numbers, or system shared memory: the BYTES of Triton have a length`, not},
		"dictionary":      {"r", typed(&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, `"a"`), nil, "the indices of a dictionary", not},
		"list":            {"r", typed(arrow.ListOf(integers), `[1]`), nil, `columns["x"].type = list`, not},
		"decimal":         {"r", typed(&arrow.Decimal128Type{Precision: 3}, `"1"`), nil, `columns["x"].type = decimal`, not},
		"list of text":    {"r", typed(arrow.FixedSizeListOf(1, arrow.BinaryTypes.String), `["a"]`), nil, `columns["x"].type = utf8`, not},
		"nulls":           {"r", nulls, nil, `columns["x"].NullCount = 1, want 0: tensors have no nulls`, invalid},
		"nulls, sliced":   {"r", slice, nil, `columns["x"].NullCount = 1`, invalid},
		"null list":       {"r", typed(arrow.FixedSizeListOf(1, integers), `null`), nil, `columns["x"].NullCount = 1`, invalid},
		"nulls in a list": {"r", typed(arrow.FixedSizeListOf(2, integers), `[1,null]`), nil, `columns["x"].NullCount = 1`, invalid},
		"negative device": {"r", good, []triton.RegionOption{triton.WithDeviceID(-1)}, "WithDeviceID = -1, want 0 or more", invalid},
		"shape of none":   {"r", good, []triton.RegionOption{triton.WithShape("c", 3)}, `WithShape = "c", want the name of a column`, invalid},
		"too few":         {"r", good, []triton.RegionOption{triton.WithShape("a", 2)}, `columns["a"].WithShape = [2], want dimensions of 3 elements`, invalid},
		"no shape":        {"r", good, []triton.RegionOption{triton.WithShape("a")}, `columns["a"].WithShape = []`, invalid},
		"negative shape":  {"r", good, []triton.RegionOption{triton.WithShape("a", -1, -3)}, `columns["a"].WithShape = [-1 -3]`, invalid},
		"large shape":     {"r", good, []triton.RegionOption{triton.WithShape("a", 1<<62, 1<<62)}, `columns["a"].WithShape`, invalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := triton.NewRegion(background, c.region, c.batch, c.opts...)
			assert.ErrorContains(t, err, c.want)
			assert.ErrorIs(t, err, c.is)
			var wrong *cdevice.FieldError
			assert.ErrorAs(t, err, &wrong)
		})
	}
}

// The elements of a tensor are aligned to their size, at any offset of a slice: a kernel that reads others ends the server's context.
func TestGPURegionAlignment(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	gpu := cudatest.One(t, cudasim.Options{}).GPUs[0]
	mem, err := gpu.Shareable().Allocate(background, 256, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, mem.FreeAfter(nil)) }()
	for address := mem.Ptr(); address <= mem.Ptr()+8; address++ {
		values := cdevice.ArrayData{Length: 6, Buffers: []device.Ptr{0, address}}
		lists := cdevice.ArrayData{Length: 3, Buffers: []device.Ptr{0}, Children: []cdevice.ArrayData{values}}
		for dt, size := range map[arrow.DataType]device.Ptr{
			arrow.PrimitiveTypes.Int8: 1, arrow.FixedWidthTypes.Float16: 2, arrow.FixedWidthTypes.Date32: 4, integers: 8,
		} {
			for path, batch := range map[string]*cdevice.RecordBatch{
				`columns["x"]`:             batchAt(t, gpu, dt, values),
				`columns["x"].children[0]`: batchAt(t, gpu, arrow.FixedSizeListOf(2, dt), lists),
			} {
				part, err := batch.Slice(1, 3)
				require.NoError(t, err)
				for _, b := range []*cdevice.RecordBatch{batch, part} {
					r, err := triton.NewRegion(background, "r", b)
					if address%size == 0 {
						require.NoError(t, err)
						r.Close()
						continue
					}
					assert.ErrorIs(t, err, arrow.ErrInvalid)
					assert.ErrorContains(t, err, fmt.Sprintf("%s.Buffers[1] = %#x, want an address that is a multiple of %d: "+
						"CopyTo with Device.Shareable makes a copy that is aligned", path, address, size))
				}
				part.Release()
			}
		}
	}
}

// batchAt is a batch of one column that the test owns.
func batchAt(t *testing.T, dev device.Device, dt arrow.DataType, column cdevice.ArrayData) *cdevice.RecordBatch {
	t.Helper()
	b, err := cdevice.NewRecordBatch(dev, schemaOf(field("x", dt)), column.Length, []cdevice.ArrayData{column}, cdevice.Lifetime{})
	require.NoError(t, err)
	t.Cleanup(b.Release)
	return b
}

func selected(t *testing.T, b *cdevice.RecordBatch, columns ...int) *cdevice.RecordBatch {
	t.Helper()
	s, err := b.Select(columns...)
	require.NoError(t, err)
	t.Cleanup(s.Release)
	return s
}

// scattered is a batch over two allocations.
func scattered(t *testing.T, gpu *cudaalloc.Device) *cdevice.RecordBatch {
	t.Helper()
	var columns []cdevice.ArrayData
	var all []device.Memory
	for range 2 {
		mem, err := gpu.Shareable().Allocate(background, 64, nil)
		require.NoError(t, err)
		all = append(all, mem)
		columns = append(columns, cdevice.ArrayData{Length: 8, Buffers: []device.Ptr{0, mem.Ptr()}})
	}
	b, err := cdevice.NewRecordBatch(gpu, schemaOf(field("a", integers), field("b", integers)), 8, columns, cdevice.Lifetime{Release: func() {
		for _, mem := range all {
			assert.NoError(t, mem.FreeAfter(nil))
		}
	}})
	require.NoError(t, err)
	t.Cleanup(b.Release)
	return b
}
