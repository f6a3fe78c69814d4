package soak

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// tally counts rounds, and other things, by name.
type tally struct {
	all    atomic.Int64 // rounds
	mu     sync.Mutex
	rounds map[string]int
	other  map[string]int
}

func (t *tally) round(scenario string) {
	t.all.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rounds == nil {
		t.rounds = map[string]int{}
	}
	t.rounds[scenario]++
}

func (t *tally) count(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.other == nil {
		t.other = map[string]int{}
	}
	t.other[what] += n
}

func (t *tally) counted(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.other[what]
}

func (t *tally) sum() int64 { return t.all.Load() }

func (t *tally) String() (text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, counts := range []map[string]int{t.rounds, t.other} {
		for _, name := range sortedKeys(counts) {
			text += fmt.Sprintf("\n  %-62s %7d", name, counts[name])
		}
	}
	return text
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// summary prints the counters of the machine.
func (c *crew) summary() {
	c.t.Logf("%s\nrounds: %d%v\ncalls whose context ended:%v\nsimulated driver: %d calls, %d failed\n%v", c.plan, c.tally.sum(),
		&c.tally, &c.latency, c.Sim.Calls(""), c.Sim.Report().FailedCalls, &c.usage)
	c.usage.check(c.t, c.plan.steady)
}

// watchdog ends the process, with the stacks of all goroutines, where no round ends for so
// long: go test would print them only at the end of its time.
func (c *crew) watchdog(patience time.Duration) (stop func()) {
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		seen, since := c.tally.sum(), time.Now()
		tick := time.NewTicker(patience / 20)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if n := c.tally.sum(); n != seen {
				seen, since = n, time.Now()
			} else if time.Since(since) > patience {
				giveUp(fmt.Sprintf("%s, machine %q: no round ended for %v", c.plan, c.kind.name, patience))
			}
		}
	})
	return func() {
		close(done)
		ended.Wait()
	}
}
