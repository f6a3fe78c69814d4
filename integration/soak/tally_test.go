package soak

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// tally counts rounds, and other things, by name.
type tally struct {
	rounds atomic.Int64
	mu     sync.Mutex
	counts map[string]int
}

func (t *tally) round(scenario string) {
	t.rounds.Add(1)
	t.count(scenario, 1)
}

func (t *tally) count(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[what] += n
}

func (t *tally) counted(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[what]
}

func (t *tally) sum() int64 { return t.rounds.Load() }

func (t *tally) String() (text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range sortedKeys(t.counts) {
		text += fmt.Sprintf("\n  %-62s %7d", name, t.counts[name])
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
