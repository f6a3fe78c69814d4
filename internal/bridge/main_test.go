package bridge

import (
	"fmt"
	"os"
	"testing"

	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
)

// All tests together leave no C memory behind.
func TestMain(m *testing.M) {
	code := goroutineleak.Run(m)
	if blocks, exports := Blocks(), Exports(); code == 0 && (blocks != 0 || exports != 0) {
		fmt.Fprintf(os.Stderr, "the tests left %d blocks of C memory, %d of exports\n", blocks, exports)
		code = 1
	}
	os.Exit(code)
}
