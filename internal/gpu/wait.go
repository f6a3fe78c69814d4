package gpu

import (
	"context"
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

// poll calls query until it returns true or an error, or ctx is done.
func poll(ctx context.Context, query func() (bool, error)) error {
	var pause backoff
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
