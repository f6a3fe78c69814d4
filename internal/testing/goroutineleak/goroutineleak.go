// Package goroutineleak fails the tests of a package that leave goroutines which nothing can wake.
package goroutineleak

import (
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
)

// Run runs the tests of a package and returns the exit status, for its TestMain. If they pass and have leaked goroutines, it
// prints the stacks of these and returns 1.
//
// Leaked are goroutines that wait for a channel, a lock or the like that no other goroutine can reach. A global variable, and
// with it a handle in C, counts as one that can. The runtime finds them, from Go 1.27 on; before, Run only runs the tests.
func Run(m *testing.M) int {
	code := m.Run()
	if leaked := stacks(); code == 0 && leaked != "" {
		fmt.Fprint(os.Stderr, "the tests left goroutines that nothing can wake\n", leaked)
		return 1
	}
	return code
}

// stacks returns the stacks of the leaked goroutines, "" if there are none or the runtime has no such profile.
func stacks() string {
	profile := pprof.Lookup("goroutineleak")
	if profile == nil {
		return ""
	}
	var stacks strings.Builder
	// Writing the profile looks for leaks, so the count is that of the last one written.
	if err := profile.WriteTo(&stacks, 1); err != nil {
		return err.Error()
	}
	if profile.Count() == 0 {
		return ""
	}
	return stacks.String()
}
