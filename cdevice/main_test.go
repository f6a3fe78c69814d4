package cdevice_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// All tests together leave nothing behind.
func TestMain(m *testing.M) {
	cudatest.WithoutDefault()
	bridge.CountCallbacks()
	code := goroutineleak.Run(m)
	// A stream that is a batch ahead ends on a goroutine of its own.
	ended := within.Becomes(20*time.Second, func() bool { return cdevice.ReadStats() == (cdevice.Stats{}) })
	if words := handle.Live(); code == 0 && words != 0 {
		fmt.Fprintf(os.Stderr, "the tests left %d handles in C structs\n", words)
		code = 1
	}
	if code == 0 && !ended {
		fmt.Fprintf(os.Stderr, "the tests left something unreleased: %+v\n", cdevice.ReadStats())
		code = 1
	}
	os.Exit(code)
}
