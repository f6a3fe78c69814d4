package measure

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// Call does once what is measured; done, which may be nil, ends what it made.
type Call func() (done func(), err error)

// Turns is how calls are measured.
type Turns struct {
	Each  time.Duration // for each call, in all rounds
	Bytes int64         // that a call copies
	// Progress, if it is not nil, is called before each turn.
	Progress func(call, round int)
}

// Rounds is how often each call is come back to, so that what slows the machine down for a moment does not hit
// one call alone.
const Rounds = 3

// most is how many times a call is measured at most in one round.
const most = 10_000

// Measure returns how long each of the calls took, again and again. When ctx is done it ends after the call in progress.
func (t Turns) Measure(ctx context.Context, calls []Call) (took [][]time.Duration, err error) {
	took = make([][]time.Duration, len(calls))
	for round := range Rounds {
		for i, call := range calls {
			if t.Progress != nil {
				t.Progress(i, round)
			}
			samples, err := t.repeat(ctx, call, round == 0)
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], samples...)
		}
	}
	return took, nil
}

// large is the size from which on Go's garbage is collected after each copy, between
// measurements: otherwise a collection falls into some of them.
const large = 16 << 20

// repeat makes the call for its time, at least twice. In the first round some calls before are not measured: they fill caches.
func (t Turns) repeat(ctx context.Context, call Call, first bool) (samples []time.Duration, err error) {
	warming := 0
	if first {
		warming = 2
	}
	var spent time.Duration
	for len(samples) < 2 || spent < t.Each/Rounds && len(samples) < most {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		start := time.Now()
		done, err := call()
		took := time.Since(start)
		if err != nil {
			return nil, err
		}
		if done != nil {
			done()
		}
		if t.Bytes >= large {
			runtime.GC()
		}
		if warming > 0 {
			warming--
			continue
		}
		samples = append(samples, took)
		spent += took
	}
	return samples, nil
}

// Median sorts samples, and returns the one in their middle, which is not 0.
func Median(samples []time.Duration) time.Duration {
	slices.Sort(samples)
	return max(1, samples[len(samples)/2])
}
