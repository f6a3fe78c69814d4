package tree

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

// machine is a GPU of which a driver knows the memory at some addresses. It has no streams.
type machine struct {
	device.Device
	coherent bool
	known    map[device.Ptr]device.ID
	asked    int
}

func (m *machine) ID() device.ID          { return device.ID{Type: device.CUDA, Ordinal: 1} }
func (m *machine) CPUAccessible() bool    { return false }
func (m *machine) HardwareCoherent() bool { return m.coherent }

func (m *machine) Lookup(p device.Ptr) (device.Allocation, error) {
	m.asked++
	id, ok := m.known[p]
	if !ok {
		return device.Allocation{}, errors.New("the driver fails")
	}
	return device.Allocation{ID: id}, nil
}

// The driver is asked about each buffer, and one that the CPU cannot access is enough.
func TestForCPU(t *testing.T) {
	const plain, pinned, managed, others, own, lost = 8, 16, 24, 32, 40, 48
	known := map[device.Ptr]device.ID{
		plain: {Type: device.CPU, Ordinal: device.NoOrdinal}, pinned: {Type: device.CUDAHost},
		managed: {Type: device.CUDAManaged, Ordinal: 1}, others: {Type: device.CUDAManaged}, own: {Type: device.CUDA, Ordinal: 1},
	}
	of := func(buffers ...uintptr) Node { return Node{Length: 1, Buffers: buffers} }
	parent := func(child Node) Node { return Node{Buffers: []uintptr{own}, Children: []Node{child}} }
	for name, c := range map[string]struct {
		nodes []Node
		asked int
		want  bool
	}{
		"no memory":                   {nil, 0, true},
		"NULL":                        {[]Node{of(0, 0)}, 0, true},
		"of an empty array":           {[]Node{parent(of())}, 0, true},
		"all that the CPU has":        {[]Node{of(plain, pinned), of(managed)}, 3, true},
		"the GPU's own":               {[]Node{of(0, own)}, 1, false},
		"one is the GPU's":            {[]Node{of(plain, plain), of(managed, own)}, 4, false},
		"a child's is the GPU's":      {[]Node{parent(of(own))}, 1, false},
		"managed memory of another":   {[]Node{of(others)}, 1, false},
		"memory of which no one says": {[]Node{of(lost)}, 1, false},
	} {
		m := &machine{coherent: true, known: known}
		at := Location{ID: m.ID(), Dev: m, Event: 7}
		want := at
		want.Assumed = c.want
		assert.Equal(t, want, at.ForCPU(c.nodes), name)
		assert.Equal(t, c.asked, m.asked, name)
	}

	m := &machine{known: known}
	at := Location{ID: m.ID(), Dev: m}
	assert.False(t, at.ForCPU([]Node{of(plain)}).CPUAccessible(), "the GPU has page tables of its own")
	assert.Zero(t, m.asked)
	at.Assumed = true
	assert.True(t, at.ForCPU([]Node{of(own)}).CPUAccessible(), "declared by the program")
	at = Location{ID: device.ID{Type: device.WebGPU}}
	assert.False(t, at.ForCPU([]Node{of(plain)}).CPUAccessible(), "a device without a backend")
	var unable struct{ device.Coherent }
	unable.Coherent = &machine{coherent: true}
	at = Location{ID: m.ID(), Dev: struct {
		device.Device
		device.Coherent
	}{m, unable}}
	assert.False(t, at.ForCPU([]Node{of(plain)}).CPUAccessible(), "a device that knows no addresses")
}
