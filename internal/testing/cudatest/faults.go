package cudatest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"testing"
	"time"
)

// Fault is a call of the driver that is made to fail: the k-th one of a function.
type Fault struct {
	Function string
	Call     int // from 1
}

func (f Fault) String() string { return fmt.Sprintf("call %d of %s", f.Call, f.Function) }

// AllFaults is the environment variable that makes [Faults] return every call, if it is
// "all".
const AllFaults = "CDEVICE_FAULTS"

// Faults returns the calls to fail, one at a time, of those that were counted. Each function
// is among them. Of a function that was called often, Faults returns the first call, the
// last, and calls at an even distance between them: a loop makes the same call from the same
// place again and again.
func Faults(calls map[string]int) (faults []Fault) {
	limit := 25
	switch {
	case os.Getenv(AllFaults) == "all":
		limit = 0
	case testing.Short(): // instrumented runs, which are slow
		limit = 6
	}
	for _, function := range slices.Sorted(maps.Keys(calls)) {
		for _, k := range spread(calls[function], limit) {
			faults = append(faults, Fault{function, k})
		}
	}
	return faults
}

// spread returns the numbers from 1 to n, or limit of them, unless that is 0.
func spread(n, limit int) (numbers []int) {
	if limit == 0 || n <= limit {
		limit = n
	}
	for i := range limit {
		numbers = append(numbers, 1+i*(n-1)/max(1, limit-1))
	}
	return numbers
}

const (
	patience = time.Minute      // with one fault
	reserve  = 20 * time.Second // before the end of the time that go test gives
)

// Meets runs do while a call of it fails with a result, and reports whether that call was
// made. A run that is stuck ends the process, and one that leaves no time for the rest of the
// tests fails this one: both name the fault, as the timeout of go test does not.
func (m *Machine) Meets(t *testing.T, what string, fault Fault, result int, do func()) (met bool) {
	t.Helper()
	at := fmt.Sprintf("%s: %s: %s", t.Name(), what, fault)
	if deadline, ok := t.Deadline(); ok && time.Until(deadline) < reserve {
		t.Fatalf("%s: no time is left; -timeout, or fewer faults than %s=all, gives more", at, AllFaults)
	}
	defer watch(at, patience)()
	m.Sim.Fail(fault.Function, fault.Call, result)
	defer m.Sim.Fail("", 0, 0)
	do()
	_, met = m.Sim.Failed()
	return met
}

// watch gives up when the returned function is not called in time.
func watch(at string, patience time.Duration) (done func()) {
	timer := time.AfterFunc(patience, func() {
		var stacks bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
		panic(fmt.Sprintf("%s: not done after %v\n\n%s", at, patience, stacks.String()))
	})
	return func() { timer.Stop() }
}
