package cdevice_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// All tests together leave nothing behind.
func TestMain(m *testing.M) {
	cudatest.WithoutDefault()
	bridge.CountCallbacks()
	code := m.Run()
	left := cdevice.ReadStats()
	for deadline := time.Now().Add(10 * time.Second); left != (cdevice.Stats{}) && time.Now().Before(deadline); left = cdevice.ReadStats() {
		runtime.Gosched() // a stream that is a batch ahead ends on a goroutine of its own
	}
	if words := handle.Live(); code == 0 && words != 0 {
		fmt.Fprintf(os.Stderr, "the tests left %d handles in C structs\n", words)
		code = 1
	}
	if owners := bridge.Owners(); code == 0 && owners != 0 {
		fmt.Fprintf(os.Stderr, "the tests left C memory of the exports of %d owners\n", owners)
		code = 1
	}
	if code == 0 && left != (cdevice.Stats{}) {
		fmt.Fprintf(os.Stderr, "the tests left something unreleased: %+v\n", left)
		code = 1
	}
	os.Exit(code)
}
