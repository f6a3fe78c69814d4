package validate

import (
	"context"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
	"github.com/arrowdevice/arrowdevice/internal/tree"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// memories are addresses of memory of a machine with two GPUs.
type memories struct {
	gpu                         device.Ptr // 20 bytes of the first GPU
	second                      device.Ptr // of the other GPU
	freed                       device.Ptr
	pinned, managed             device.Ptr // 64 bytes of the first GPU's
	secondPinned, secondManaged device.Ptr
	plain                       device.Ptr // 4096 bytes
	registered                  device.Ptr // likewise
	destroyed, foreign          uintptr    // events
}

func memoriesOf(t *testing.T, m *cudatest.Machine) (x memories) {
	t.Helper()
	gpu, second := m.On(t, m.GPUs[0]), m.On(t, m.GPUs[1])
	allocate := func(d *cudaalloc.Device, size int64) device.Ptr { return m.On(t, d).Ready(size).Ptr() }
	x.gpu, x.second = allocate(gpu.Device, 20), allocate(second.Device, 4096)
	x.pinned, x.managed = allocate(gpu.Pinned(), 64), allocate(gpu.Managed(), 64)
	x.secondPinned, x.secondManaged = allocate(second.Pinned(), 64), allocate(second.Managed(), 64)
	gone := gpu.Memory(4096, nil)
	x.freed = gone.Ptr()
	require.NoError(t, gone.Free(nil))
	plain, registered := mapped[byte](t, 4096), mapped[byte](t, 4096)
	r, err := hostpinned.Register(gpu.Device, registered)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Unregister(context.Background())) })
	x.plain, x.registered = device.Ptr(abi.AddressOf(plain)), device.Ptr(abi.AddressOf(registered))
	destroyed, err := gpu.NewEvent()
	require.NoError(t, err)
	x.foreign, x.destroyed = second.Event(second.Legacy()).Handle(), destroyed.Handle()
	require.NoError(t, destroyed.Close())
	require.NoError(t, gpu.Trim(t.Context()))
	return x
}

// The declared device is asked about each buffer before it is read, and all open devices about memory that is declared
// as the CPU's. The errors name the field.
func TestAddressesAreAskedOfTheDriver(t *testing.T) {
	for name, options := range map[string]cudasim.Options{"": {Devices: 2}, "managed memory of the GPU alone": {Devices: 2, NoConcurrentManaged: true}} {
		t.Run(name, func(t *testing.T) { testAddresses(t, cudatest.Simulated(t, options)) })
	}
}

func testAddresses(t *testing.T, m *cudatest.Machine) {
	x, gpu := memoriesOf(t, m), m.GPUs[0]
	ints, text, views := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String, arrow.BinaryTypes.StringView
	lists := arrow.ListOf(ints)
	words := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: ints}
	maps := arrow.MapOf(text, ints)
	buffer := func(i int, p device.Ptr) trees.Change { return func(n *tree.Node) { n.Buffers[i] = uintptr(p) } }
	long := func(p device.Ptr) trees.Change { return trees.Both(buffer(1, p), trees.Length(1<<20)) }
	asItWas := func(*tree.Node) {}
	const (
		longText  = `["a text that is longer than the sixty-four bytes of the memory to which it is said to point"]`
		longValue = `["a text that does not fit into a view"]`
		ofGPU     = "memory of cuda:0, want memory that the CPU can access"
		ofCPU     = "memory of cpu, want memory that the CPU can access, page-locked or managed"
	)
	own, cpu := []device.Device{gpu}, []device.Device{device.CPUDevice()}
	host := []device.Device{gpu.Pinned(), gpu.Managed()}
	for _, row := range []struct {
		name string
		on   []device.Device // the declared one
		dt   arrow.DataType
		text string
		set  trees.Change
		want string // "": it is accepted
	}{
		{"as it was", slices.Concat(own, host, cpu), text, `["a","bb",null]`, asItWas, ""},
		{"nested", slices.Concat(own, host), arrow.ListOf(text), `[["a"],["bb",null]]`, asItWas, ""},
		{"text of no bytes", host, text, `["",""]`, asItWas, ""},
		{"nothing", host, text, `[]`, buffer(1, x.plain), ""},

		{"a host pointer", own, ints, `[1,2,3]`, buffer(1, x.plain), "memory of cpu, want memory of cuda:0"},
		{"memory of another device", own, ints, `[1,2,3]`, buffer(1, x.second), "memory of cuda:1, want memory of cuda:0"},
		{"freed memory", own, ints, `[1,2,3]`, buffer(1, x.freed), "memory of cpu, want memory of cuda:0"},
		{"an allocation that is too short", own, ints, `[1,2,3]`, buffer(1, x.gpu), "want an allocation with 24 bytes from there"},
		{"text that is too short", own, text, longText, buffer(2, x.gpu), "array.buffers[2]"},
		{"a child of another device", own, lists, `[[1],[2,3]]`, trees.In(0, buffer(1, x.second)), "array.children[0].buffers[1]"},
		{"keys with a bitmap of another device", own, maps, `[[{"key":"a","value":1}]]`, trees.In(0, trees.In(0, trees.Both(trees.Nulls(-1), buffer(0, x.second)))),
			"array.children[0].children[0].buffers[0] = 0x"},

		{"page-locked", host, ints, `[1,2,3]`, buffer(1, x.pinned), ""},
		{"managed", host, ints, `[1,2,3]`, buffer(1, x.managed), ""},
		{"registered", host, ints, `[1,2,3]`, buffer(1, x.registered+8), ""},
		{"page-locked for another GPU", host, ints, `[1,2,3]`, buffer(1, x.secondPinned), ""},
		{"managed by another GPU", host[1:], ints, `[1,2,3]`, buffer(1, x.secondManaged), "memory of cuda_managed:1, want memory of cuda_managed:0"},
		{"8 MiB in 64 bytes", host, ints, `[1,2,3]`, long(x.pinned), "array.buffers[1] = 0x"},
		{"8 MiB in 64 managed bytes", host, ints, `[1,2,3]`, long(x.managed), "an allocation with 8388608 bytes from there"},
		{"a registration that is too short", host, ints, `[1,2,3]`, buffer(1, x.registered+4080), "an allocation with 24 bytes from there"},
		{"plain memory", host, ints, `[1,2,3]`, buffer(1, x.plain), ofCPU},
		{"device memory", host, ints, `[1,2,3]`, buffer(1, x.gpu), ofGPU},
		{"a bitmap", host, ints, `[1,null]`, buffer(0, x.plain), "array.buffers[0] = 0x"},
		{"text", host, text, `["a","bb"]`, buffer(2, x.plain), "array.buffers[2] = 0x"},
		{"text beyond a registration", host, text, longText, buffer(2, x.registered+4080), "array.buffers[2]"},
		{"data of views", host[:1], views, longValue, buffer(2, x.plain), "array.buffers[2] = 0x"},
		{"data of views that is too short", host[:1], views, longValue, trees.Put[int64](3, 0, 8<<20), "an allocation with 8388608 bytes from there"},
		{"a child", host, lists, `[[1],[2,3]]`, trees.In(0, buffer(1, x.plain)), "array.children[0].buffers[1] = 0x"},

		{"nothing is read of it", cpu, ints, `[]`, buffer(1, x.gpu), ""},
		{"managed memory", cpu, ints, `[1,2,3]`, buffer(1, x.managed), ""},
		{"values", cpu, ints, `[1,2,3]`, buffer(1, x.gpu), ofGPU},
		{"in the middle of an allocation", cpu, ints, `[1,2,3]`, buffer(1, x.gpu+8), ofGPU},
		{"a bitmap of a GPU", cpu, ints, `[1,null,3]`, buffer(0, x.gpu), "array.buffers[0] = 0x"},
		{"offsets of a GPU", cpu, text, `["a","bb"]`, buffer(1, x.gpu), "array.buffers[1] = 0x"},
		{"text of a GPU", cpu, text, `["a","bb"]`, buffer(2, x.gpu), "array.buffers[2] = 0x"},
		{"data of views of a GPU", cpu, views, longValue, buffer(2, x.gpu), "array.buffers[2] = 0x"},
		{"a child of a GPU", cpu, lists, `[[1],[2,3]]`, trees.In(0, buffer(1, x.gpu)), "array.children[0].buffers[1] = 0x"},
		{"a dictionary of a GPU", cpu, words, `[1,2]`, trees.In(0, buffer(1, x.gpu)), "array.dictionary.buffers[1] = 0x"},
	} {
		for _, dev := range row.on {
			t.Run(row.name+"/"+dev.ID().String(), func(t *testing.T) {
				l := trees.LooseOf(t, trees.FromJSON(t, row.dt, row.text))
				of := l.Tree
				if dev.ID().Type != device.CPU {
					of = l.Upload(t, dev)
				}
				row.set(&of.Nodes[0])
				err := Tree(t.Context(), of)
				if row.want == "" {
					assert.NoError(t, err)
					return
				}
				assert.ErrorContains(t, err, row.want)
				assert.ErrorContains(t, err, "cdevice: validate: array.")
				assert.ErrorIs(t, err, arrow.ErrInvalid)
			})
		}
	}
}

// The event of memory that the CPU cannot access is checked by the driver, and the device must be one of this process
// that can be asked.
func TestEventsAndDevicesAreAsked(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	x, gpu := memoriesOf(t, m), m.GPUs[0]
	there := trees.LooseOf(t, trees.FromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`)).Upload(t, gpu)
	event := func(handle uintptr) func(*tree.Location) {
		cell := mapped[uintptr](t, 1) // which does not move
		cell[0] = handle
		return func(l *tree.Location) { l.Event = at(cell) }
	}
	for name, row := range map[string]struct {
		change func(*tree.Location)
		want   string
	}{
		"as it was":                     {func(*tree.Location) {}, ""},
		"of another device":             {event(x.foreign), ""},
		"no event":                      {event(0), "ArrowDeviceArray.sync_event"},
		"destroyed":                     {event(x.destroyed), "ArrowDeviceArray.sync_event"},
		"no backend":                    {func(l *tree.Location) { l.ID, l.Dev = device.ID{Type: device.ROCM}, nil }, "ArrowDeviceArray.device_type = rocm, want a device of this process (ValidateFull)"},
		"a device that cannot be asked": {func(l *tree.Location) { l.Dev = struct{ device.Device }{gpu} }, "want a device that is a device.Prober (ValidateFull)"},
	} {
		of := there
		row.change(&of.At)
		err := Tree(t.Context(), of)
		if row.want == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, row.want, name)
		}
	}
}
