package cudaarray_test

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Arrays without a form in the interface are refused, with the reason.
func TestExportRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	gpu := m.GPUs[0]
	plain := onGPU(t, m, numbers, `[1,2,3]`)
	nulls := onGPU(t, m, numbers, `[1,null,3,4]`)
	lists := onGPU(t, m, arrow.FixedSizeListOf(2, numbers), `[[1,2],[3,4],null]`)
	inner := onGPU(t, m, arrow.FixedSizeListOf(2, numbers), `[[1,2],[3,null],[5,6]]`)
	bytes := mask(t, m)
	elsewhere := ready(t, fromJSON(t, arrow.PrimitiveTypes.Uint8, `[1,0,1]`), gpu.Pinned())
	host, err := cdevice.WrapArray(fromJSON(t, numbers, `[1]`), device.CPUDevice())
	require.NoError(t, err)
	defer host.Release()
	ended, err := plain.Slice(0, 1)
	require.NoError(t, err)
	ended.Release()

	invalid, not := arrow.ErrInvalid, arrow.ErrNotImplemented
	for name, c := range map[string]struct {
		a    *cdevice.Array
		opts []cudaarray.ExportOption
		want string
		is   error
	}{
		"booleans":     {onGPU(t, m, arrow.FixedWidthTypes.Boolean, `[true]`), nil, "type = bool, want booleans in bytes", not},
		"strings":      {onGPU(t, m, arrow.BinaryTypes.String, `["a"]`), nil, "type = utf8, want numbers", not},
		"days":         {onGPU(t, m, arrow.FixedWidthTypes.Date32, `[1]`), nil, "type = date32, want numbers", not},
		"decimals":     {onGPU(t, m, &arrow.Decimal128Type{Precision: 5}, `["1"]`), nil, "type = decimal(5, 0)", not},
		"lists":        {onGPU(t, m, arrow.ListOf(numbers), `[[1]]`), nil, "type = list<", not},
		"list of text": {onGPU(t, m, arrow.FixedSizeListOf(1, arrow.BinaryTypes.String), `[["a"]]`), nil, "type = utf8", not},
		"the CPU":      {host, nil, "Array.DeviceID = cpu, want CUDA memory", device.ErrNotSupported},
		"released":     {ended, nil, "Array: invalid: already released", cdevice.ErrReleased},
		"released too": {ended, []cudaarray.ExportOption{cudaarray.WithStream(gpu.Legacy())}, "Array: invalid: already released", cdevice.ErrReleased},

		"nulls":              {nulls, nil, "Array.NullCount = 1, want 0, or a mask: WithBitmapMask for cuDF", invalid},
		"declared away":      {nulls, []cudaarray.ExportOption{cudaarray.WithoutNulls()}, "Array.NullCount = 1", invalid},
		"unknown":            {slice(t, nulls, 0, 1), nil, "Array.NullCount = not known, want 0: Array.CountNulls counts them", invalid},
		"null list":          {lists, nil, "Array.NullCount = 1", invalid},
		"null list, unknown": {slice(t, lists, 0, 1), nil, "Array.NullCount = not known", invalid},
		"null in a list":     {inner, nil, "Array.Child(0).NullCount = 1", invalid},
		"null elsewhere":     {slice(t, inner, 0, 1), nil, "Array.Child(0).NullCount = not known", invalid},

		"stream of another GPU": {plain, []cudaarray.ExportOption{cudaarray.WithStream(m.GPUs[1].Legacy())}, "WithStream = a stream of cuda:1, want a stream of cuda:0", invalid},
		"stream of the CPU":     {plain, []cudaarray.ExportOption{cudaarray.WithStream(cudatest.NewStream(t, device.CPUDevice()))}, "WithStream = a stream of cpu", invalid},
		"two masks":             {nulls, []cudaarray.ExportOption{cudaarray.WithMask(bytes), cudaarray.WithBitmapMask()}, "WithMask = an array, want either", invalid},
		"bitmap of lists":       {lists, []cudaarray.ExportOption{cudaarray.WithBitmapMask()}, "want no list for WithBitmapMask", not},
		"bitmap in a byte":      {slice(t, nulls, 1, 4), []cudaarray.ExportOption{cudaarray.WithBitmapMask()}, "Array.Offset = 1, want a multiple of 32", not},
		"short mask":            {nulls, []cudaarray.ExportOption{cudaarray.WithMask(bytes)}, "WithMask.shape = [3], want [4], the shape of the array", invalid},
		"mask of numbers":       {plain, []cudaarray.ExportOption{cudaarray.WithMask(plain)}, "WithMask.type = int64, want uint8, int8 or arrow.bool8", invalid},
		"mask of text":          {plain, []cudaarray.ExportOption{cudaarray.WithMask(onGPU(t, m, arrow.BinaryTypes.String, `["a"]`))}, "WithMask.type = utf8", not},
		"mask with nulls":       {plain, []cudaarray.ExportOption{cudaarray.WithMask(onGPU(t, m, arrow.PrimitiveTypes.Uint8, `[1,null,1]`))}, "WithMask.Array.NullCount = 1", invalid},
		"mask elsewhere":        {plain, []cudaarray.ExportOption{cudaarray.WithMask(elsewhere)}, "WithMask.DeviceID = cuda_host:0, want cuda:0", invalid},
		"mask of a mask":        {plain, []cudaarray.ExportOption{cudaarray.WithMask(copied(t, fromJSON(t, arrow.PrimitiveTypes.Uint8, `[1,0,1]`), gpu))}, "WithMask.Array = an array with an event", invalid},
	} {
		t.Run(name, func(t *testing.T) {
			i, err := cudaarray.Export(c.a, c.opts...)
			assert.ErrorContains(t, err, "cudaarray: export: ")
			assert.ErrorContains(t, err, c.want)
			assert.ErrorIs(t, err, c.is)
			assert.Zero(t, i)
			var field *cdevice.FieldError
			assert.ErrorAs(t, err, &field)
		})
	}
}

// Interfaces without a form in Arrow, and malformed ones, are refused; the memory is released once.
func TestImportRefuses(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	good := exported(t, onGPU(t, m, numbers, `[1,2,3,4,5,6]`))
	with := func(change func(*cudaarray.Interface)) cudaarray.Interface {
		i := good
		change(&i)
		return i
	}
	typed := func(typestr string) cudaarray.Interface {
		return with(func(i *cudaarray.Interface) { i.TypeStr = typestr })
	}
	shaped := func(shape ...int64) cudaarray.Interface {
		return with(func(i *cudaarray.Interface) { i.Shape = shape })
	}
	strided := func(shape, strides []int64) cudaarray.Interface {
		return with(func(i *cudaarray.Interface) { i.Shape, i.Strides = shape, strides })
	}
	masked := func(change func(i, mask *cudaarray.Interface)) cudaarray.Interface {
		return with(func(i *cudaarray.Interface) {
			i.Mask = &cudaarray.Interface{Shape: []int64{6}, TypeStr: "<t1", Data: good.Data, Version: 1}
			change(i, i.Mask)
		})
	}
	invalid, not := arrow.ErrInvalid, arrow.ErrNotImplemented
	for name, c := range map[string]struct {
		i    cudaarray.Interface
		want string
		is   error
	}{
		"version 4":       {with(func(i *cudaarray.Interface) { i.Version = 4 }), "version = 4, want 0 to 3", invalid},
		"version -1":      {with(func(i *cudaarray.Interface) { i.Version = -1 }), "version = -1", invalid},
		"no type":         {typed(""), `typestr = "", want one like "<i8"`, invalid},
		"no width":        {typed("<i"), `typestr = "<i"`, invalid},
		"width of 0":      {typed("<i0"), `typestr = "<i0"`, invalid},
		"no order":        {typed("i8"), `typestr = "i8"`, invalid},
		"bad order":       {typed("!i8"), `typestr = "!i8", want a byte order of`, invalid},
		"unknown order":   {typed("|i8"), `want a byte order for elements of several bytes`, invalid},
		"big-endian":      {typed(">i8"), `typestr = ">i8", want the byte order of the machine`, not},
		"wide integers":   {typed("<i16"), `typestr = "<i16", want a number of 1, 2, 4 or 8 bytes`, not},
		"wide floats":     {typed("<f16"), `typestr = "<f16"`, not},
		"one-byte floats": {typed("|f1"), `typestr = "|f1"`, not},
		"wide booleans":   {typed("<b2"), "want booleans of one byte", not},
		"complex":         {typed("<c8"), "want no complex numbers", not},
		"structures":      {typed("|V8"), "want no structures", not},
		"text":            {typed("<U4"), "want no strings", not},
		"objects":         {typed("|O8"), "want no Python objects", not},
		"bits":            {typed("<t1"), "want no bit fields, except as a mask", not},
		"days":            {typed("<M8[D]"), "want a unit of s, ms, us or ns", not},
		"several":         {typed("<M8[10us]"), "want a unit of s, ms, us or ns", not},
		"no unit":         {typed("<m8"), "want a unit of s, ms, us or ns", not},
		"not closed":      {typed("<m8[s"), "want a unit of s, ms, us or ns", not},
		"unheard of":      {typed("<x8"), `typestr = "<x8"`, not},

		"a scalar":        {shaped(), "shape = [], want at least one dimension", invalid},
		"negative":        {shaped(-1), "shape = [-1], want no negative length", invalid},
		"negative inside": {shaped(2, -3), "shape = [2 -3]", invalid},
		"empty lists":     {shaped(6, 0), "shape = [6 0], want lists of 1 to 2147483647 elements", invalid},
		"long lists":      {shaped(1, 1<<31), "shape = [1 2147483648]", invalid},
		"too much":        {shaped(1<<40, 1<<30), "want elements that fit into memory", invalid},
		"far too much":    {shaped(math.MaxInt64), "want elements that fit into memory", invalid},
		"deep":            {shaped(make([]int64, 65)...), "shape = 65 dimensions, want at most 64", invalid},

		"gaps":             {strided([]int64{3}, []int64{16}), "strides = [16], want [8]: Arrow's arrays have no gaps", not},
		"backwards":        {strided([]int64{6}, []int64{-8}), "strides = [-8]", not},
		"repeated":         {strided([]int64{6}, []int64{0}), "strides = [0]", not},
		"columns first":    {strided([]int64{2, 3}, []int64{8, 16}), "strides = [8 16], want [24 8]", not},
		"too few strides":  {strided([]int64{2, 3}, []int64{8}), "strides = 1 numbers, want 2", invalid},
		"strides, but not": {strided([]int64{6}, []int64{}), "strides = 0 numbers, want 1", invalid},

		"no address":         {with(func(i *cudaarray.Interface) { i.Data.Ptr = 0 }), "data = 0x0, want the address of 48 bytes", invalid},
		"between elements":   {with(func(i *cudaarray.Interface) { i.Data.Ptr += 4 }), "want an address that is a multiple of 8", invalid},
		"around the end":     {with(func(i *cudaarray.Interface) { i.Data.Ptr = math.MaxUint64 - 7 }), "data = 0xfffffffffffffff8", invalid},
		"stream 0":           {with(func(i *cudaarray.Interface) { i.Stream = number(0) }), "stream = 0, want 1 (legacy default)", invalid},
		"stream -1":          {with(func(i *cudaarray.Interface) { i.Stream = number(-1) }), "stream = -1", invalid},
		"mask of bytes":      {masked(func(_, m *cudaarray.Interface) { m.TypeStr = "|b1" }), `mask.typestr = "|b1", want "<t1": a validity bitmap has bits`, not},
		"mask of what":       {masked(func(_, m *cudaarray.Interface) { m.TypeStr = "?" }), `mask.typestr = "?"`, invalid},
		"mask of a matrix":   {masked(func(i, m *cudaarray.Interface) { i.Shape, m.Shape = []int64{2, 3}, []int64{2, 3} }), "mask.shape = [2 3], want one dimension", not},
		"short mask":         {masked(func(_, m *cudaarray.Interface) { m.Shape = []int64{5} }), "mask.shape = [5], want [6], as the data", invalid},
		"mask with strides":  {masked(func(_, m *cudaarray.Interface) { m.Strides = []int64{1} }), "mask.strides = [1]", not},
		"mask with a mask":   {masked(func(_, m *cudaarray.Interface) { m.Mask = &good }), "mask.mask = a mask", invalid},
		"mask of version 9":  {masked(func(_, m *cudaarray.Interface) { m.Version = 9 }), "mask.version = 9", invalid},
		"mask at no address": {masked(func(_, m *cudaarray.Interface) { m.Data.Ptr = 0 }), "mask.data = 0x0, want the address of 1 bytes", invalid},
		"two streams":        {masked(func(i, m *cudaarray.Interface) { i.Stream, m.Stream = number(1), number(2) }), "mask.stream = 2, want 1, as the data", not},
		"bad mask stream":    {masked(func(i, m *cudaarray.Interface) { m.Stream = number(0) }), "import: mask.stream = 0, want 1 (legacy default)", invalid},
	} {
		t.Run(name, func(t *testing.T) { refused(t, gpu, c.i, c.want, c.is) })
	}
	for dt, want := range map[arrow.DataType]string{
		arrow.PrimitiveTypes.Int32:                                    `WithType = int32, want a type for typestr "<i8" and shape [6]`,
		arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int64):          `WithType = fixed_size_list`,
		arrow.FixedWidthTypes.Boolean:                                 `WithType.type = bool`,
		&arrow.TimestampType{Unit: arrow.Second}:                      `WithType = timestamp`,
		&arrow.DictionaryType{IndexType: numbers, ValueType: numbers}: `WithType.type = dictionary`,
	} {
		refused(t, gpu, good, want, nil, cudaarray.WithType(dt))
	}
	refused(t, device.CPUDevice(), good, "WithDevice = cpu, want a CUDA device", invalid)
}

// A refused export orders no stream, and does not keep the memory for later work.
func TestRefusedExportsChangeNothing(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	source := onGPU(t, m, numbers, `[1,null,3]`)
	short := onGPU(t, m, arrow.PrimitiveTypes.Uint8, `[1,0]`)
	stranger := m.Stranger(t, gpu)
	for name, opts := range map[string][]cudaarray.ExportOption{
		"nulls":                {cudaarray.WithStream(gpu.Legacy())},
		"nulls, no stream":     nil,
		"short mask":           {cudaarray.WithStream(gpu.Legacy()), cudaarray.WithMask(short)},
		"short mask, no event": {cudaarray.WithMask(short)},
	} {
		t.Run(name, func(t *testing.T) {
			filler := cudatest.NewStream(t, gpu)
			open := m.Hold(t, filler)
			pending, err := source.WithEvent(filler)
			require.NoError(t, err)
			defer pending.Release()
			m.Sim.ResetCounters()
			_, err = cudaarray.Export(pending, opts...)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.Zero(t, m.Sim.Calls("cuStreamWaitEvent"))
			open()

			released := new(atomic.Int32)
			a := producers(t, source, gpu, released)
			_, err = cudaarray.Export(a, opts...)
			assert.ErrorContains(t, err, map[bool]string{true: "NullCount", false: "WithMask.shape"}[strings.HasPrefix(name, "nulls")])
			open = stranger.Hold(t)
			defer open()
			a.Release()
			assert.EqualValues(t, 1, released.Load(), "at once")
		})
	}
}

// Exports and imports have the same limit of dimensions.
func TestDimensionsHaveALimit(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	nested := func(lists int) arrow.DataType {
		dt := numbers
		for range lists {
			dt = arrow.FixedSizeListOf(1, dt)
		}
		return dt
	}
	i := exported(t, onGPU(t, m, nested(63), `[]`))
	assert.Len(t, i.Shape, 64)
	assert.Equal(t, "[]", values(t, m.GPUs[0], i))
	_, err := cudaarray.Export(onGPU(t, m, nested(64), `[]`))
	assert.ErrorIs(t, err, arrow.ErrNotImplemented)
	assert.ErrorContains(t, err, "want at most 64 dimensions")
}

// The stream of another GPU is an error that names the GPU that it must be of.
func TestStreamOfAnotherGPU(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	pinned := ready(t, fromJSON(t, numbers, `[1,2,3]`), m.GPUs[0].Pinned())
	i := exported(t, pinned)
	handle := int64(cudatest.NewStream(t, m.GPUs[1]).Handle())
	i.Stream = &handle
	want := fmt.Sprintf("stream = %d, want a stream of cuda:0, where the memory is: cuda: cuEventRecord(", handle)
	refused(t, m.GPUs[0].Pinned(), i, want, cudaalloc.InvalidHandle)
	assert.Equal(t, "[1 2 3]", values(t, m.GPUs[1].Pinned(), i))
}

// The device of memory is asked for with its size, beyond which no element may be.
func TestGPUImportRefusesWhatExceedsTheAllocation(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	for _, dev := range []device.Device{m.GPUs[0], m.GPUs[0].Pinned(), m.GPUs[0].Managed()} {
		good := exported(t, ready(t, fromJSON(t, numbers, `[1,2,3]`), dev))
		bad := map[string]cudaarray.Interface{}
		for name, shape := range map[string][]int64{"shape = [1048576]": {1 << 20}, "shape = [3 1048576]": {3, 1 << 20}, "shape = [-1]": {-1}} {
			i := good
			i.Shape = shape
			bad[name] = i
		}
		typestr := good
		typestr.TypeStr = "<c16"
		bad["no complex numbers"] = typestr
		masked := good
		masked.Mask = &cudaarray.Interface{Shape: []int64{1 << 20}, TypeStr: "<t1", Data: good.Data}
		bad["mask.shape = [1048576]"] = masked
		for want, i := range bad {
			_, err := cudaarray.Import(i, cdevice.Lifetime{})
			assert.ErrorContains(t, err, "cudaarray: import: ")
			assert.ErrorContains(t, err, want, dev.ID())
		}
	}
}

// refused is an import that fails, and gives the memory back.
func refused(t *testing.T, dev device.Device, i cudaarray.Interface, want string, is error, opts ...cudaarray.ImportOption) {
	t.Helper()
	released := 0
	_, err := cudaarray.Import(i, cdevice.Lifetime{Release: func() { released++ }}, append(opts, cudaarray.WithDevice(dev))...)
	assert.ErrorContains(t, err, "cudaarray: import: ")
	assert.ErrorContains(t, err, want)
	if is != nil {
		assert.ErrorIs(t, err, is)
	}
	assert.Equal(t, 1, released)
	_, again := cudaarray.Import(i, cdevice.Lifetime{}, append(opts, cudaarray.WithDevice(dev))...)
	assert.Equal(t, err, again, "without a function to call")
}

// Memory has one event: that of the lifetime, or of the stream that the interface names. It is closed in any case.
func TestGPUImportTakesOneEvent(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	i := exported(t, onGPU(t, m, numbers, `[1,2,3]`))
	event := func() device.Event {
		s := cudatest.NewStream(t, gpu)
		e, err := gpu.NewEvent()
		require.NoError(t, err)
		require.NoError(t, s.Record(e))
		return e
	}
	var released atomic.Int32 // on goroutines of the GPU
	lifetime := func() cdevice.Lifetime {
		return cdevice.Lifetime{Ready: event(), Release: func() { released.Add(1) }}
	}
	a, err := cudaarray.Import(i, lifetime(), cudaarray.WithDevice(gpu))
	require.NoError(t, err)
	assert.Equal(t, "[1 2 3]", text(t, a))
	a.Release()
	i.Stream = number(cudaarray.LegacyStream)
	_, err = cudaarray.Import(i, lifetime(), cudaarray.WithDevice(gpu))
	assert.ErrorContains(t, err, "cudaarray: import: lifetime.Ready = an event, want none: the interface names a stream")
	flush(t, gpu)
	assert.EqualValues(t, 2, released.Load())
}

// The default driver knows the device of the memory. So the test is in a process of its own.
func TestImportFindsTheDevice(t *testing.T) {
	otherprocess.Start(t, "TestDeviceOfMemory", cudatest.Simulated(t, cudasim.Options{}).Path()).End(0)
}

// TestDeviceOfMemory is the other process. An empty array, which has no address, is on the first GPU.
func TestDeviceOfMemory(t *testing.T) {
	otherprocess.Caller(t)
	gpu, err := cudaalloc.Open(0)
	require.NoError(t, err)
	for _, dev := range []device.Device{gpu, gpu.Pinned(), gpu.Managed()} {
		a := ready(t, fromJSON(t, numbers, `[1,2,3]`), dev)
		got, err := cudaarray.Import(exported(t, a), cdevice.Lifetime{})
		require.NoError(t, err)
		assert.Equal(t, dev.ID(), got.DeviceID())
		assert.Equal(t, text(t, a), text(t, got))
		got.Release()
	}
	got, err := cudaarray.Import(cudaarray.Interface{Shape: []int64{0}, TypeStr: "<i8", Version: 3}, cdevice.Lifetime{})
	require.NoError(t, err)
	assert.Equal(t, gpu.ID(), got.DeviceID())
	got.Release()
	require.NoError(t, gpu.Flush(background))
}

// Forms of the same array are taken: earlier versions, strides that say nothing, byte orders of a byte.
func TestGPUImportTakes(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	good := exported(t, onGPU(t, m, arrow.PrimitiveTypes.Uint8, `[1,2,3,4,5,6]`))
	take := func(change func(*cudaarray.Interface)) string {
		i := good
		change(&i)
		return values(t, gpu, i)
	}
	for version := range 4 {
		assert.Equal(t, "[1 2 3 4 5 6]", take(func(i *cudaarray.Interface) { i.Version = version }))
	}
	for _, typestr := range []string{"|u1", "<u1", ">u1", "|b1"} {
		assert.Equal(t, "[1 2 3 4 5 6]", take(func(i *cudaarray.Interface) { i.TypeStr = typestr }))
	}
	assert.Equal(t, "[1 2 3 4 5 6]", take(func(i *cudaarray.Interface) { i.Strides = []int64{1} }))
	assert.Equal(t, "[[1 2 3] [4 5 6]]", take(func(i *cudaarray.Interface) { i.Shape, i.Strides = []int64{2, 3}, []int64{3, 1} }))
	assert.Equal(t, "[[[1 2 3]] [[4 5 6]]]", take(func(i *cudaarray.Interface) { i.Shape, i.Strides = []int64{2, 1, 3}, []int64{3, 77, 1} }))
	assert.Equal(t, "[2]", take(func(i *cudaarray.Interface) { i.Shape, i.Strides, i.Data.Ptr = []int64{1}, []int64{99}, i.Data.Ptr+1 }))
}

func TestNilArguments(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	a := onGPU(t, m, numbers, `[1]`)
	i := exported(t, a)
	export := func(a *cdevice.Array, opts ...cudaarray.ExportOption) error {
		_, err := cudaarray.Export(a, opts...)
		return err
	}
	take := func(opts ...cudaarray.ImportOption) error {
		got, err := cudaarray.Import(i, cdevice.Lifetime{}, append([]cudaarray.ImportOption{cudaarray.WithDevice(gpu)}, opts...)...)
		if err == nil {
			got.Release()
		}
		return err
	}
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/interop/cudaarray", arrow.ErrInvalid, map[string]nilargs.Row{
		"Export(a)":       {Call: func() error { return export(nil) }, Want: "cudaarray: export: Array = nil, want an array"},
		"Export(opts...)": {Call: func() error { return export(a, nil) }, Want: "cudaarray: export: opts[0] = nil, want an option"},
		"WithStream(s)":   {Call: func() error { return export(a, cudaarray.WithStream((*cudaalloc.Stream)(nil))) }, Want: "export: WithStream = nil, want a stream"},
		"WithMask(mask)":  {Call: func() error { return export(a, cudaarray.WithMask(nil)) }, Want: "export: WithMask = nil, want an array"},
		"WithDevice(dev)": {Call: func() error { return take(cudaarray.WithDevice((*cudaalloc.Device)(nil))) }, Want: "import: WithDevice = nil, want a device"},
		"Import(opts...)": {Call: func() error { return take(nil) }, Want: "cudaarray: import: opts[1] = nil, want an option"},
		"WithType(dt)":    {Call: func() error { return take(cudaarray.WithType(nil)) }, Want: "import: WithType = nil, want a data type"},
	})
}
