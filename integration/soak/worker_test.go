package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

var background = context.Background()

// worker is one goroutine. It is the testing.TB of its rounds: a failure ends the round and names
// it, cleanup is done when the round ends.
type worker struct {
	testing.TB
	*crew
	number, rounds int
	*rand.Rand     // of this round
	scenario       string
	steps          []string // of this round
	loose          []func() // to be done at the end of the round, in any order
	cleanups       []func() // thereafter, the last one first
	failed         bool
}

func newWorker(c *crew, number int) *worker { return &worker{TB: c.t, crew: c, number: number} }

// Panics that end a round.
type (
	stopped  struct{} // after a failure
	noMemory struct{} // on a machine that has little
)

func (w *worker) run() {
	for ; !w.over.Load(); w.rounds++ {
		w.round()
	}
}

func (w *worker) round() {
	w.Rand = rand.New(rand.NewPCG(w.plan.seed, uint64(w.number)<<32|uint64(w.rounds)))
	w.steps, w.failed = w.steps[:0], false
	s := w.draw()
	w.scenario = s.name
	outcome := s.name
	if w.try(func() { s.do(w) }) {
		outcome += ", no memory"
	}
	for len(w.loose) > 0 {
		i := w.IntN(len(w.loose))
		f := w.loose[i]
		w.loose = slices.Delete(w.loose, i, i+1)
		w.try(f)
	}
	for len(w.cleanups) > 0 {
		last := len(w.cleanups) - 1
		f := w.cleanups[last]
		w.cleanups = w.cleanups[:last]
		w.try(f)
	}
	w.tally.round(outcome)
	w.hang.Reset(noProgress)
}

// try calls f and reports whether it ended for lack of memory.
func (w *worker) try(f func()) (poor bool) {
	defer func() {
		switch v := recover().(type) {
		case nil, stopped:
		case thrown: // by a callback, on this goroutine
			w.caught.Add(1)
		case noMemory:
			poor = true
		case error:
			if poor = w.lacksMemory(v); !poor {
				w.report(fmt.Sprintf("panic: %v\n%s", v, debug.Stack()))
			}
		default:
			w.report(fmt.Sprintf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	f()
	return false
}

// lacksMemory reports whether err is an error of a machine with little memory. An error that has
// crossed C keeps only its text.
func (w *worker) lacksMemory(err error) bool {
	return errors.Is(err, hostpinned.ErrLimit) || w.kind.poor &&
		(errors.Is(err, cudaalloc.OutOfMemory) || strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY"))
}

// ok ends the round if err is an error; one about memory is no failure on a poor machine.
func (w *worker) ok(err error) {
	if err == nil {
		return
	}
	if w.lacksMemory(err) {
		panic(noMemory{})
	}
	_, file, line, _ := runtime.Caller(1)
	w.Fatalf("%s:%d: %v", file[strings.LastIndex(file, "/")+1:], line, err)
}

// got is a value without an error; see [worker.ok].
func got[T any](w *worker) func(T, error) T {
	return func(v T, err error) T {
		w.Helper()
		w.ok(err)
		return v
	}
}

// did notes a step, for the report of a failure.
func (w *worker) did(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

// later makes f part of the end of the round, in a random order with others, unless the
// returned function has called it before.
func (w *worker) later(f func()) (now func()) {
	done := false
	once := func() {
		if !done {
			done = true
			f()
		}
	}
	w.loose = append(w.loose, once)
	return once
}

func (w *worker) report(text string) {
	w.failed = true
	w.crew.fail(fmt.Sprintf("goroutine %d, round %d, %s: %s\n\t%s",
		w.number, w.rounds, w.scenario, text, strings.Join(w.steps, "\n\t")))
}

// The methods of testing.TB whose meaning is a round's and not the test's.

func (w *worker) Helper()                           {}
func (w *worker) Cleanup(f func())                  { w.cleanups = append(w.cleanups, f) }
func (w *worker) Errorf(format string, args ...any) { w.report(fmt.Sprintf(format, args...)) }
func (w *worker) Error(args ...any)                 { w.report(fmt.Sprint(args...)) }
func (w *worker) Fail()                             { w.failed = true }
func (w *worker) FailNow()                          { panic(stopped{}) }
func (w *worker) Failed() bool                      { return w.failed }
func (w *worker) Fatalf(format string, args ...any) { w.Errorf(format, args...); w.FailNow() }
func (w *worker) Fatal(args ...any)                 { w.Error(args...); w.FailNow() }
