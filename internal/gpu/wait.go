package gpu

import (
	"context"
	"runtime"
	"time"
)

// Waits. A wait that a context may end polls the driver on the goroutine of the caller: when it
// returns, no thread and no use of the handle remain. A wait that no context ends blocks in the
// driver, which keeps an OS thread, so only a few do at a time.

// blocking limits waits that block in the driver, asking limits those that poll it: each call may
// keep an OS thread.
var (
	blocking = make(chan struct{}, 64)
	asking   = make(chan struct{}, 64)
)

// wait returns when the work is done, or ctx is.
func wait(ctx context.Context, query func() (bool, error), block func() error) error {
	if ctx.Done() == nil {
		select {
		case blocking <- struct{}{}:
			defer func() { <-blocking }()
			return block()
		default:
		}
	}
	return poll(ctx, query)
}

// A wait asks the driver again and again before it sleeps, for a time and a number of queries: a small copy
// takes some 10 us, a thread that sleeps in the driver 20 to 60 us to wake up, and a timer of 20 us takes 1 ms
// where the process has nothing else to do. Other goroutines run in between.
const (
	busyTime    = 100 * time.Microsecond
	busyQueries = 10
)

// pollBusily calls query until it returns true or an error, ctx is done, or it is time to sleep.
func pollBusily(ctx context.Context, query func() (bool, error)) (done bool, err error) {
	started := time.Now()
	for i := 0; i < busyQueries || time.Since(started) < busyTime; i++ {
		if done, err = ask(ctx, query); done || err != nil {
			return done, err
		}
		runtime.Gosched()
	}
	return false, nil
}

// poll calls query until it returns true or an error, or ctx is done.
func poll(ctx context.Context, query func() (bool, error)) error {
	if done, err := pollBusily(ctx, query); done || err != nil {
		return err
	}
	pause := backoff{naps: true}
	for {
		if done, err := ask(ctx, query); done || err != nil {
			return err
		}
		if err := pause.sleep(ctx); err != nil {
			return err
		}
	}
}

// ask calls query, when fewer than 64 queries are being made.
func ask(ctx context.Context, query func() (bool, error)) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	select {
	case asking <- struct{}{}:
		defer func() { <-asking }()
		return query()
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// backoff is the pause between two polls: an eighth of the time that has passed, within
// limits, so that a wait is not much longer than the work, and a long one costs little.
type backoff struct {
	since time.Time // the first poll
	timer *time.Timer
	least time.Duration
	naps  bool // short pauses are exact, and keep a thread; see [nap]
}

const (
	shortestPause = 20 * time.Microsecond
	longestPause  = time.Millisecond
)

func (b *backoff) sleep(ctx context.Context) error {
	if b.since.IsZero() {
		b.since = time.Now()
	}
	pause := max(min(max(time.Since(b.since)/8, shortestPause), longestPause), b.least)
	if b.naps && pause < longestPause && nap(pause) {
		return ctx.Err()
	}
	if b.timer == nil {
		b.timer = time.NewTimer(pause)
	} else {
		b.timer.Reset(pause)
	}
	select {
	case <-b.timer.C:
		return nil
	case <-ctx.Done():
		b.timer.Stop()
		return ctx.Err()
	}
}
