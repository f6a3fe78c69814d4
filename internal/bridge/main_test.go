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
	if blocks, trees, owners := Blocks(), Trees(), Owners(); code == 0 && (blocks != 0 || trees != 0 || owners != 0) {
		fmt.Fprintf(os.Stderr, "the tests left %d blocks of C memory, %d of trees, exports of %d owners\n", blocks, trees, owners)
		code = 1
	}
	os.Exit(code)
}
