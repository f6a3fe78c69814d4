package watch

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

// told has what it was told.
type told struct {
	mu    sync.Mutex
	all   []string
	known bool // the backend
}

func (t *told) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, what)
}

func (t *told) GiveBack(device.Device)     { t.add("give back") }
func (t *told) AfterWork(any, func()) bool { t.add("after work"); return t.known }
func (t *told) End(program bool, f func()) { t.add("end"); f() }
func (t *told) Publish()                   { t.add("publish") }
func (t *told) Take(Waits)                 { t.add("take") }
func (t *told) Read([]device.Range)        { t.add("read") }
func begin(t *testing.T, f func() Waits)   { Begin(f); t.Cleanup(func() { newWaits.Store(nil) }) }
func noWait(t *testing.T) func(func())     { return func(func()) { t.Error("the program's way to wait") } }

// Without a simulated driver a place does nothing but what the program would do.
func TestPlaceWithoutASimulatedDriver(t *testing.T) {
	var p, from Place
	assert.False(t, Begun())
	p.GiveBack(device.CPUDevice())
	p.Take(&from)
	p.Publish()
	p.Read(nil)
	waited := false
	p.AfterWork(nil, func(f func()) { f() }, func() { waited = true })
	assert.True(t, waited)
	assert.True(t, p.Empty())
}

// A place has no waits before the first wait, or the release of memory of a device.
func TestPlaceMakesItsWaitsOnce(t *testing.T) {
	made := 0
	w := &told{known: true}
	begin(t, func() Waits { made++; return w })
	var p, from Place
	p.GiveBack(nil)
	p.Take(&from)
	p.Publish()
	p.Read(nil)
	assert.True(t, p.Empty())
	assert.Zero(t, made)

	from.AfterWork(nil, noWait(t), nil)
	p.Take(&from)
	p.Publish()
	p.GiveBack(nil)
	p.Read(nil)
	ended := false
	p.End(true, func() { ended = true })
	assert.True(t, ended)
	assert.Equal(t, 2, made)
	assert.Equal(t, []string{"after work", "take", "publish", "give back", "read", "end"}, w.all)

	var of Place
	of.GiveBack(device.CPUDevice())
	assert.False(t, of.Empty())
}

// The work of a backend that the driver does not know is waited for as the program would.
func TestPlaceWaitsForAnUnknownBackend(t *testing.T) {
	begin(t, func() Waits { return &told{} })
	var p Place
	waited := false
	p.AfterWork(nil, func(func()) { waited = true }, nil)
	assert.True(t, waited)
}

// Goroutines that need the waits of one place get the same ones.
func TestPlaceOnSeveralGoroutines(t *testing.T) {
	begin(t, func() Waits { return &told{known: true} })
	for range 100 {
		var p Place
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { p.AfterWork(nil, noWait(t), nil) })
		}
		all.Wait()
		assert.Len(t, p.made().(*told).all, 4)
	}
}
