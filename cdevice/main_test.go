package cdevice_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
)

// All tests together leave nothing behind.
func TestMain(m *testing.M) {
	cudatest.WithoutDefault()
	code := m.Run()
	if left := cdevice.ReadStats(); code == 0 && left != (cdevice.Stats{}) {
		fmt.Fprintf(os.Stderr, "the tests left something unreleased: %+v\n", left)
		code = 1
	}
	os.Exit(code)
}
