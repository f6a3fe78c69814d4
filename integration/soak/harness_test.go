package soak

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The soak's own parts, which are there to fail.

func TestWatchdogEndsARunWithoutProgress(t *testing.T) {
	said := make(chan string, 100)
	before := giveUp
	giveUp = func(text string) { said <- text }
	defer func() { giveUp = before }()
	c := &crew{t: t, kind: machine{name: "stuck"}}
	stop := c.watchdog(20 * time.Millisecond)
	assert.Contains(t, <-said, `machine "stuck": no round ended for 20ms`)
	stop()
}

func TestLatencyKeepsTheWorst(t *testing.T) {
	var l latency
	for i := range 200 {
		l.given("call", time.Duration(i)*time.Millisecond, i%2 == 0)
	}
	l.given("call", -1, false)
	c := l.calls["call"]
	assert.Equal(t, lateness{given: 201, failed: 100, total: 200, worst: 199 * time.Millisecond, late: c.late}, *c)
	assert.Equal(t, 197*time.Millisecond, percentile(c.late, 99))
	assert.Zero(t, percentile(nil, 99))
	assert.Contains(t, l.String(), "max 199ms")
}

func TestScenariosHaveNames(t *testing.T) {
	names := map[string]bool{}
	for _, s := range scenarios() {
		assert.Positive(t, s.weight, s.name)
		names[s.name] = true
	}
	assert.Len(t, names, len(scenarios()))
}

// A call is late after the bound, and what the machine has delayed it.
func TestLatencyExcusesDelaysOfTheMachine(t *testing.T) {
	var l latency
	const bound, allowance = 100 * time.Millisecond, time.Second
	assert.False(t, l.isTooLate(bound, bound, 0))
	assert.True(t, l.isTooLate(bound+1, bound, 0), "nothing excuses it")
	assert.False(t, l.isTooLate(bound+allowance-time.Millisecond, bound, allowance))
	assert.True(t, l.isTooLate(bound+allowance+1, bound, allowance))
	assert.Contains(t, l.String(), "1 calls returned after the bound, excused by delays of the machine: at most by 1s, where 1ms was left")
}
