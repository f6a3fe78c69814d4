package soak

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

const (
	maxHolds    = 6           // streams that are held back at once
	maxCaptures = 3           // streams that are captured at once
	maxFailures = 5           // that are printed in full
	hostLimit   = 32          // MiB of each allocator of page-locked or managed memory
	noProgress  = time.Minute // after which the process ends with the stacks of all goroutines
)

// crew has the goroutines on one machine, and their shared state.
type crew struct {
	*cudatest.Machine
	t       *testing.T
	kind    machine
	plan    plan
	pinned  []*hostpinned.Allocator // of each GPU
	managed []*cudaalloc.ManagedAllocator

	tally    tally
	owed     sync.Map // the counts of calls of callbacks that were not called, with their names
	latency  latency
	hang     *time.Timer // ends the process, with the stacks of all goroutines, unless a round ends: make soak has no timeout
	pace     *within.Pace
	usage    usage
	holds    chan struct{} // one for each stream held back
	captures chan struct{}

	// foreign is how many streams are held back while exported memory may be used on them:
	// that holds up frees of the same GPU, and so may hold up others.
	foreign atomic.Int64

	thrown, caught atomic.Int64 // callbacks that did not return: all, and those whose panic reached a worker

	over     atomic.Bool
	failures atomic.Int64
}

func newCrew(t *testing.T, kind machine, p plan) *crew {
	before := runtime.NumGoroutine()
	t.Cleanup(func() { eventually(t, "goroutines ended", func() bool { return runtime.NumGoroutine() <= before+10 }) })
	c := &crew{
		Machine: cudatest.Simulated(t, kind.options), t: t, kind: kind, plan: p,
		holds: make(chan struct{}, maxHolds), captures: make(chan struct{}, maxCaptures),
	}
	for _, gpu := range c.GPUs {
		c.pinned = append(c.pinned, cudatest.Pinned(t, gpu, hostpinned.WithLimit(hostLimit<<20)))
		managed, err := cudaalloc.NewManagedAllocator(gpu, cudaalloc.WithLimit(hostLimit<<20))
		require.NoError(t, err)
		c.managed = append(c.managed, managed)
	}
	return c
}

// run is the whole of a machine: the work, then the proof that nothing is left.
func (c *crew) run() {
	c.hang = time.AfterFunc(noProgress, func() {
		abort(fmt.Sprintf("%s, machine %q: no round ended for %v", c.plan, c.kind.name, noProgress))
	})
	defer c.hang.Stop()
	c.pace = within.MeasurePace()
	defer c.pace.Stop()
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() { newWorker(c, i).run() })
	}
	c.supervise()
	all.Wait()
	c.hang.Stop()
	c.settle()
	c.summary()
}

// supervise samples the process and the machine until the time is over or a worker failed.
func (c *crew) supervise() {
	c.usage.begin()
	begin := time.Now()
	every := min(5*time.Second, c.plan.each/4)
	for n := 1; !c.over.Load(); n++ {
		time.Sleep(time.Until(begin.Add(time.Duration(n) * every)))
		spent := time.Since(begin)
		if len(c.Sim.Report().Violations) > 0 {
			c.fail("rules of the driver were violated") // which ones, it prints
		}
		c.usage.sample(spent >= c.plan.each/2)
		c.t.Logf("%6.1fs: %d rounds, %v", spent.Seconds(), c.tally.sum(), c.usage.now())
		if spent >= c.plan.each {
			c.over.Store(true)
		}
	}
	c.usage.end()
}

// fail ends the machine's work; the first failures are printed, after the violations that
// may be their cause.
func (c *crew) fail(text string) {
	c.over.Store(true)
	n := c.failures.Add(1)
	if v := c.Sim.Report().Violations; n == 1 && len(v) > 0 {
		c.t.Errorf("%s, machine %q: %d violations:\n\t%s", c.plan, c.kind.name, len(v), strings.Join(v[:min(len(v), maxFailures)], "\n\t"))
	}
	if n <= maxFailures {
		c.t.Errorf("%s, machine %q: %s", c.plan, c.kind.name, text)
	} else if n == maxFailures+1 {
		c.t.Error("more failures are not printed")
	}
}

// settle waits for all frees that pending work defers, and fails if anything is left.
func (c *crew) settle() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 { // a callback of one GPU may free memory of the other
		for _, gpu := range c.GPUs {
			assert.NoError(c.t, gpu.Flush(ctx))
		}
	}
	eventually(c.t, "each callback was called", func() bool { return len(c.uncalled()) == 0 })
	assert.Empty(c.t, c.uncalled(), "callbacks that were not called")
	assert.Equal(c.t, c.thrown.Load(), c.caught.Load()+c.guarded(), "callbacks that did not return")
	eventually(c.t, "nothing is exported or imported", func() bool { return cdevice.ReadStats() == cdevice.Stats{} })
	assert.Zero(c.t, cdevice.ReadStats())
	for i := range c.GPUs {
		eventually(c.t, "allocators have everything back", func() bool { return c.allocated(i) == 0 })
		assert.Zero(c.t, c.allocated(i), "bytes of the allocators of cuda:%d", i)
	}
	// The Machine checks for other live objects when the test ends.
}

// guarded is the number of panics that the GPUs have kept from ending the process.
func (c *crew) guarded() (n int64) {
	for _, gpu := range c.GPUs {
		n += gpu.ReadStats().CallbackPanics
	}
	return n
}

// allocated returns the live bytes of the allocators of a GPU.
func (c *crew) allocated(gpu int) int64 {
	pinned := c.pinned[gpu].ReadStats().Pinned.Live
	managed := c.managed[gpu].ReadStats().Live
	return pinned + managed
}

// eventually waits for a condition, a minute at most. The caller checks the result.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !within.Becomes(noProgress, holds) {
		t.Errorf("not within %v: %s", noProgress, what)
	}
}
