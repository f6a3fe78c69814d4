package soak

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// maxThreads bounds the threads that the Go runtime has made: it ends none of them, so their number
// shows how many goroutines were in the driver at once.
const maxThreads = 400

// usage is the process's use of memory, in bytes, and of threads.
type usage struct {
	start, middle, last int64
	threads             int
}

func (u *usage) begin() { u.start = settledMemory() }

// sample measures now, and once thoroughly when the second half has begun.
func (u *usage) sample(secondHalf bool) {
	u.threads = max(u.threads, threads())
	if secondHalf && u.middle == 0 {
		u.middle = settledMemory()
	}
}

func (u *usage) end() { u.last = settledMemory() }

func (u *usage) now() string {
	return fmt.Sprintf("RSS %d MiB, %d threads of Go", residentMemory()>>20, threads())
}

func (u *usage) String() string {
	return fmt.Sprintf("RSS: %d MiB at the start, %d in the middle, %d at the end; threads of Go: %d",
		u.start>>20, u.middle>>20, u.last>>20, u.threads)
}

// check fails if memory grew from the first half to the second, or threads without bound.
func (u *usage) check(t *testing.T, memory bool) {
	assert.Less(t, u.threads, maxThreads)
	if memory && u.middle > 0 { // a run that failed early has no second half
		assert.LessOrEqual(t, u.last, u.middle+u.middle*3/10+64<<20, "RSS grows: %v", u)
	}
}

// residentMemory returns the RSS of the process, 0 where the system does not report it.
func residentMemory() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// settledMemory returns the RSS without the free memory that the Go heap keeps.
func settledMemory() int64 {
	debug.FreeOSMemory()
	return residentMemory()
}

func threads() int { return pprof.Lookup("threadcreate").Count() }

// abort ends the process with the stacks of all goroutines.
func abort(text string) {
	var stacks bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
	panic(text + "\n\n" + stacks.String())
}
