package within

import (
	"sync"
	"time"
)

// Pace measures how long goroutines wait for a processor: a machine that is busy with other work, or with
// one processor for all goroutines, delays every step of a call, and no call is to blame for that.
type Pace struct {
	over, ended chan struct{}

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
	paceSleep  = time.Millisecond
	longDelay  = time.Millisecond
	keptDelays = 100_000
	// paceSteps is how often a call waits for a processor, at most: to take the locks before it, to be
	// told of its end, and to give back what it has. At a load of 20 on two processors the slowest of
	// thousands of calls needed 7.
	paceSteps = 20
)

// MeasurePace sleeps again and again, until Stop is called.
func MeasurePace() *Pace {
	p := &Pace{over: make(chan struct{}), ended: make(chan struct{}), begun: time.Now()}
	go func() {
		defer close(p.ended)
		for {
			select {
			case <-p.over:
				return
			case <-time.After(paceSleep):
			}
			p.step(time.Now())
		}
	}()
	return p
}

// Stop ends the measurement, and returns when its goroutine has ended.
func (p *Pace) Stop() {
	close(p.over)
	<-p.ended
}

func (p *Pace) step(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if late := now.Sub(p.begun) - paceSleep; late > longDelay {
		if len(p.delays) == keptDelays {
			p.delays = p.delays[keptDelays/2:]
		}
		p.delays = append(p.delays, lateSleep{now, late})
	}
	p.begun = now
}

// Allowance is how much longer than they should calls may take that began at t and end now: next to nothing
// on a machine that had time.
func (p *Pace) Allowance(t, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	worst := max(0, now.Sub(p.begun)-paceSleep)
	for i := len(p.delays) - 1; i >= 0 && p.delays[i].end.After(t); i-- {
		worst = max(worst, p.delays[i].time)
	}
	return paceSteps * worst
}
