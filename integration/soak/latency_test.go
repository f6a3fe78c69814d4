package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"
)

// latency is how long after the end of their contexts calls returned.
type latency struct {
	mu      sync.Mutex
	calls   map[string]*lateness
	excused int          // calls that returned after the bound, and within the allowance for delays of the machine
	watched atomic.Int64 // calls whose stacks were recorded
}

// lateness is that of one kind of call.
type lateness struct {
	given  int // calls that were made with a context
	late   int // of those that returned after its end
	failed int // with the error of the context
	worst  time.Duration
}

// watch records the stacks of all goroutines if the call has not returned after that time: once it
// returns, the cause is gone. It does so for few calls of a machine.
func (l *latency) watch(bound time.Duration) (stop func() (stacks string)) {
	var text bytes.Buffer
	done := make(chan struct{})
	timer := time.AfterFunc(bound, func() {
		defer close(done)
		if l.watched.Add(1) <= 4*maxFailures {
			_ = pprof.Lookup("goroutine").WriteTo(&text, 1)
		}
	})
	return func() string {
		if timer.Stop() {
			return ""
		}
		<-done
		return text.String()
	}
}

// count counts a call. late is negative where the call returned before the end of its context. count reports whether that is later
// than the bound and the delays of the machine allow.
func (l *latency) count(what string, late, bound, allowance time.Duration, failed bool) (tooLate bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = map[string]*lateness{}
	}
	c := l.calls[what]
	if c == nil {
		c = new(lateness)
		l.calls[what] = c
	}
	c.given++
	if failed {
		c.failed++
	}
	if late >= 0 {
		c.late++
		c.worst = max(c.worst, late)
	}
	if late <= bound || late > bound+allowance {
		return late > bound
	}
	l.excused++
	return false
}

// String is a line for each kind of call, and one for those that a busy machine excuses.
func (l *latency) String() (text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range sortedKeys(l.calls) {
		c := l.calls[what]
		text += fmt.Sprintf("\n  %-36s %7d calls, %6d given up, %6d returned after the end, at most %v",
			what, c.given, c.failed, c.late, c.worst.Round(time.Microsecond))
	}
	return text + fmt.Sprintf("\n  %d calls returned after the bound, excused by delays of the machine", l.excused)
}

// limited calls do with a context that ends within 20 ms, in one of two ways, and measures
// when it returns. It reports whether the call gave up; any other error ends the round.
func (w *worker) limited(what string, do func(context.Context) error) (gaveUp bool) {
	after := time.Duration(w.Int64N(int64(20 * time.Millisecond)))
	w.did("%s, for %v", what, after)
	var end atomic.Pointer[time.Time]
	begun := time.Now() // from here on the machine's delays make it later
	ctx, cancel := context.WithCancel(background)
	if w.IntN(2) == 0 {
		deadline := begun.Add(after)
		end.Store(&deadline)
		ctx, cancel = context.WithDeadline(background, deadline)
	} else {
		timer := time.AfterFunc(after, func() {
			now := time.Now()
			end.Store(&now)
			cancel()
		})
		defer timer.Stop()
	}
	defer cancel()
	stop := w.latency.watch(after + w.plan.bound)
	hangs := time.AfterFunc(after+noProgress, func() {
		abort(fmt.Sprintf("%s, machine %q: %s has not returned %v after the end of its context", w.plan, w.kind.name, what, noProgress))
	})
	defer hangs.Stop()
	err := do(ctx)
	late := time.Duration(-1)
	if ended := end.Load(); ended != nil {
		late = time.Since(*ended)
	}
	stacks := stop()
	gaveUp = errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	allowance := w.pace.Allowance(begun, time.Now())
	if w.latency.count(what, late, w.plan.bound, allowance, gaveUp) {
		w.Errorf("%s returned %v after the end of its context, want at most %v, and %v for delays of the machine (error: %v); goroutines after the first of these:\n%s",
			what, late, w.plan.bound, allowance, err, stacks)
	}
	if gaveUp {
		if end.Load() == nil {
			w.Errorf("%s gave up before the end of its context: %v", what, err)
		}
		return true
	}
	w.ok(err)
	return false
}
