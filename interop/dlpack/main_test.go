package dlpack_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
)

// All tests together leave nothing behind.
func TestMain(m *testing.M) {
	cudatest.WithoutDefault()
	bridge.CountCallbacks()
	code := goroutineleak.Run(m)
	if left := cdevice.ReadStats(); code == 0 && (left != cdevice.Stats{} || handle.Live() != 0) {
		fmt.Fprintf(os.Stderr, "the tests left something unreleased: %+v, %d handles\n", left, handle.Live())
		code = 1
	}
	os.Exit(code)
}
