// Package cdevicetest helps to test programs that use package cdevice.
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

// settleTime is how long memory that a test released may take to end: the memory of a device
// ends on a goroutine of the device's, after the pending work that uses it.
const settleTime = 5 * time.Second

// CheckLeaks makes the test fail if at its end an object of package cdevice is alive that was
// made during the test: a batch, an array, a reader, a host view, an exported struct that its
// consumer did not release, an imported stream. It prints each with the stack of the code
// that made it, and the counts of [cdevice.ReadStats] that differ.
//
// The host view of a batch that was made by [cdevice.WrapRecordBatch] is the arrow-go record batch that was
// wrapped. It is arrow-go that counts its references, so it is not listed: memory.CheckedAllocator
// finds one that was not released.
//
// Call it first: what the test registers with Cleanup later is done before the check. Objects
// whose release waits for work of a device have five seconds to end. The check covers the
// process, so it is not for tests that run in parallel with others.
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

// leaks describes what was made and has not ended; it is empty if that is nothing.
func leaks(before, after cdevice.Stats, objects []cdevice.LiveObject) string {
	var b strings.Builder
	was, is := reflect.ValueOf(before), reflect.ValueOf(after)
	for i := range was.NumField() {
		if more := is.Field(i).Int() - was.Field(i).Int(); more > 0 {
			fmt.Fprintf(&b, "%s: %d more than before\n", was.Type().Field(i).Name, more)
		}
	}
	for _, o := range objects {
		fmt.Fprintf(&b, "\n%s", o)
	}
	return b.String()
}

// newest is the number of the object that was made last, of those that are alive.
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
	before bool // what Trace was without the checks
}

// trace switches tracing on until stop is called. Tests may have subtests with checks of
// their own.
func trace() (stop func()) {
	tracing.Lock()
	defer tracing.Unlock()
	if tracing.checks++; tracing.checks == 1 {
		tracing.before = cdevice.Trace(true)
	}
	return func() {
		tracing.Lock()
		defer tracing.Unlock()
		if tracing.checks--; tracing.checks == 0 {
			cdevice.Trace(tracing.before)
		}
	}
}
