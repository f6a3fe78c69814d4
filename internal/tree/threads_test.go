package tree

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// exportOf is a struct that keeps m alive, in a block of size bytes.
func exportOf(m *Owner, size uintptr) *abi.ArrowArray {
	block := bridge.NewExport(size)
	block.Begin("test", 1, m.Retain())
	return &abi.ArrowArray{Release: bridge.ReleaseArray, PrivateData: uintptr(unsafe.Pointer(block))}
}

// What goroutines do to one owner at the same time; the race detector sees what they forget.
func TestOwnerOnSeveralGoroutines(t *testing.T) {
	type use = func(t *testing.T, m *Owner)
	uses := map[string]use{
		"nodes": func(t *testing.T, m *Owner) {
			nodes := []Node{{Layout: &layout.All[layout.Fixed], Buffers: []uintptr{0, 0}}}
			m.ReplaceNulls(nodes)
			assert.Equal(t, []uintptr{0, bridge.Zeros}, nodes[0].Buffers)
		},
		"pins":    func(_ *testing.T, m *Owner) { m.PinMore(new(int64)) },
		"uses":    func(_ *testing.T, m *Owner) { m.UsedOn(device.CPUDevice(), nil, nil) },
		"exports": func(_ *testing.T, m *Owner) { bridge.CallArrayRelease(exportOf(m, bridge.BlockSize)) },
	}
	uses["all"] = func(t *testing.T, m *Owner) {
		for _, name := range []string{"exports", "nodes", "pins", "uses"} {
			uses[name](t, m)
		}
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			rooted, handles, trees := bridge.Pinned.Sum(), handle.Live(), bridge.Exports()
			for range 300 {
				r := new(releases)
				m := Own(r)
				var all sync.WaitGroup
				begin := make(chan struct{})
				for range 4 {
					m.Retain()
					all.Go(func() {
						<-begin
						defer m.Release()
						use(t, m)
					})
				}
				close(begin)
				all.Wait()
				assert.Zero(t, r.n)
				m.Release()
				assert.Equal(t, 1, r.n)
			}
			assert.Equal(t, rooted, bridge.Pinned.Sum())
			assert.Equal(t, handles, handle.Live())
			assert.Equal(t, trees, bridge.Exports())
		})
	}
}
