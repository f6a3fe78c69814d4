// Package cdevicetest has helpers for tests of programs that use package cdevice.
package cdevicetest

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// settleTime bounds the wait for deferred releases: a goroutine of the device's backend releases
// device memory after the pending work that uses it.
const settleTime = 5 * time.Second

// CheckLeaks fails the test if an object of package cdevice that was made during the test is still
// alive at its end: a batch, an array, a reader, a host view, an exported struct that its consumer
// did not release, an imported stream. It prints each with the line and the stack of the code that made it, those
// of a loop once with a count, and the counts of [cdevice.ReadStats] that differ:
//
//	RecordBatch: 12 leaks, made at main.load (load.go:14), in cdevice.CopyToDevice:
//
// The host view of a batch that was made by [cdevice.WrapRecordBatch] is the arrow-go record batch
// that was wrapped. arrow-go counts its references, so it is not listed; memory.CheckedAllocator
// finds a missing release.
//
// Call it first: functions that the test registers with Cleanup later run before the check. Objects
// whose release is deferred until device work completes have five seconds. The check covers the
// whole process, so it cannot be used in parallel tests.
func CheckLeaks(t testing.TB) {
	t.Helper()
	stop := trace()
	first := newest()
	before := cdevice.ReadStats()
	t.Cleanup(func() {
		t.Helper()
		defer stop()
		for deadline := time.Now().Add(settleTime); ; time.Sleep(time.Millisecond) {
			report := leaks(before, cdevice.ReadStats(), since(first))
			if report == "" {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("cdevice: not released at the end of the test:\n%s", report)
				return
			}
		}
	})
}

// leaks describes the objects that were made and are still alive; it is empty if there are none.
func leaks(before, after cdevice.Stats, objects []cdevice.LiveObject) string {
	var b strings.Builder
	was, is := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range was.NumField() {
		if more := is.Field(i).Int() - was.Field(i).Int(); more > 0 {
			fmt.Fprintf(&b, "%s: %d more than before\n", was.Type().Field(i).Name, more)
		}
	}
	counts := map[string]int{}
	for _, o := range objects {
		counts[o.String()]++
	}
	for _, o := range objects {
		text := o.String()
		switch n := counts[text]; {
		case n > 1:
			fmt.Fprintf(&b, "\n%s: %d leaks%s", o.Kind, n, strings.TrimPrefix(text, o.Kind))
		case n == 1:
			fmt.Fprintf(&b, "\n%s", text)
		}
		delete(counts, text)
	}
	return b.String()
}

// newest returns the number of the newest object that is alive.
func newest() uint64 {
	objects := cdevice.LiveObjects()
	if len(objects) == 0 {
		return 0
	}
	return objects[len(objects)-1].Number
}

func since(first uint64) []cdevice.LiveObject {
	objects := cdevice.LiveObjects()
	for i, o := range objects {
		if o.Number > first {
			return objects[i:]
		}
	}
	return nil
}

var tracing struct {
	sync.Mutex
	checks int
	before bool // whether tracing was on before the first check
}

// trace switches tracing on until stop is called. Tests may have subtests with checks of
// their own.
func trace() (stop func()) {
	tracing.Lock()
	defer tracing.Unlock()
	if tracing.checks++; tracing.checks == 1 {
		tracing.before = cdevice.TraceObjects(true)
	}
	return func() {
		tracing.Lock()
		defer tracing.Unlock()
		if tracing.checks--; tracing.checks == 0 {
			cdevice.TraceObjects(tracing.before)
		}
	}
}
