package soak

import (
	"sync"
	"time"
)

// pace is how long a goroutine waits for a processor: a machine that is busy with other work, or with
// one processor for all goroutines, delays every step of a call, and no call is to blame for that.
type pace struct {
	mu     sync.Mutex
	begun  time.Time   // the sleep that is under way
	delays []lateSleep // the last ones that were long
}

// lateSleep is how much longer than asked for a sleep was.
type lateSleep struct {
	end  time.Time
	time time.Duration
}

const (
	paceSleep = time.Millisecond
	longDelay = time.Millisecond
	// paceSteps is how often a call waits for a processor, at most: to take the locks before it, to be
	// told of its end, and to give back what it has. At a load of 20 on two processors the slowest of
	// thousands of calls needed 7.
	paceSteps = 20
)

// measure sleeps again and again, until the function that it returns is called.
func (p *pace) measure() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	p.begun = time.Now()
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			case <-time.After(paceSleep):
			}
			p.step(time.Now())
		}
	}()
	return func() { close(over); <-ended }
}

func (p *pace) step(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if late := now.Sub(p.begun) - paceSleep; late > longDelay {
		if len(p.delays) == keep {
			p.delays = p.delays[keep/2:]
		}
		p.delays = append(p.delays, lateSleep{now, late})
	}
	p.begun = now
}

// allowance is how much longer than they should calls may take that began at t and end now: next to nothing
// on a machine that had time.
func (p *pace) allowance(t, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	worst := max(0, now.Sub(p.begun)-paceSleep)
	for i := len(p.delays) - 1; i >= 0 && p.delays[i].end.After(t); i-- {
		worst = max(worst, p.delays[i].time)
	}
	return paceSteps * worst
}
